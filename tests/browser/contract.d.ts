/** What crosses `/view/…`: written by scripts/view_types.py from view/messages.py. */
export interface Origin {
  kind: "artifacts" | "ledger" | "negotiation" | "run" | "trace";
  name: string;
  server: string;
  is_live: boolean;
  has_payloads: boolean;
  may_replay: boolean;
  redacted: Array<string>;
  note: string;
}

export interface Handler {
  name: string;
  topics: Array<string>;
  line: number;
}

export interface AgentBox {
  name: string;
  group: string;
  module: string;
  file: string;
  line: number;
  x: number;
  y: number;
  width: number;
  height: number;
  handlers: Array<Handler>;
  doc: string;
  note: string;
}

export interface Line {
  source: string;
  target: string;
  kind: "call" | "depends_on" | "topic";
  topic: string;
  verdict: "broken" | "proven" | "unknown";
  doubt: string;
  handlers: Array<string>;
  curve: string;
}

export interface Group {
  name: string;
  agents: Array<string>;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Groups {
  width: number;
  height: number;
  boxes: Array<Group>;
  lines: Array<Line>;
}

export interface TopicInfo {
  name: string;
  publishers: Array<string>;
  subscribers: Array<string>;
  is_external: boolean;
}

export interface GraphPicture {
  origin: Origin;
  width: number;
  height: number;
  agents: Array<AgentBox>;
  lines: Array<Line>;
  topics: Array<TopicInfo>;
  groups: Groups;
  note: string;
}

export interface Delivery {
  event_id: string;
  causation_id: string;
  correlation_id: string;
  topic: string;
  src: string;
  published_by: string;
  published: number;
  handler: string;
  attempt: number;
  started: number;
  duration_s: number;
  outcome: "done" | "failed" | "interrupted";
  error: string;
  payload: string;
  key: string;
  place: string;
  seq: number;
  has_payload: boolean;
}

export interface Counts {
  delivered: number;
  failed: number;
  dead: number;
  retrying: number;
  waiting: number;
  lag_s: number;
}

export interface Hello {
  origin: Origin;
  oldest: number;
  newest: number;
  interval_s: number;
}

export interface Tick {
  at: number;
  deliveries: Array<Delivery>;
  left_out: number;
  first: number;
  last: number;
  published: number;
  queued: number;
  dead_letters: number;
  handlers: Record<string, Counts>;
  negotiation: boolean;
}

export interface Bye {
  reason: string;
  may_return: boolean;
}

export interface DeliveryPage {
  deliveries: Array<Delivery>;
  has_older: boolean;
  has_newer: boolean;
  oldest: number;
  newest: number;
  note: string;
}

export interface TreeEvent {
  event_id: string;
  causation_id: string;
  topic: string;
  src: string;
  published_by: string;
  published: number;
  key: string;
  payload: unknown;
  payload_note: string;
}

export interface Planned {
  event_id: string;
  handler: string;
  attempt: number;
  at: number;
  error: string;
}

export interface DeadLetter {
  id: string;
  event_id: string;
  correlation_id: string;
  topic: string;
  handler: string;
  reason: "closed" | "full" | "gone" | "handler" | "hops" | "tree" | "unfinished";
  error: string;
  place: string;
  traceback: string;
  attempts: number;
  first_at: number;
  at: number;
  replays: number;
}

export interface EventTree {
  event_id: string;
  root: string;
  events: Array<TreeEvent>;
  deliveries: Array<Delivery>;
  planned: Array<Planned>;
  dead_letters: Array<DeadLetter>;
  running: Array<[string, string]>;
  note: string;
}

export interface Vote {
  evaluator: string;
  decision: "abstain" | "accept" | "counter" | "defer" | "reject";
  is_arbiter: boolean;
  reason: string;
}

export interface Decision {
  session: string;
  proposal: string;
  agent: string;
  title: string;
  reason: string;
  consensus: string;
  commit: string;
  first: number;
  last: number;
  votes: Array<Vote>;
}

export interface SourceText {
  name: string;
  file: string;
  first: number;
  lines: Array<string>;
  why: Array<Decision>;
  failing: Array<number>;
  note: string;
}

export interface DeadLetterList {
  letters: Array<DeadLetter>;
  total: number;
  counted: number;
  may_replay: boolean;
  note: string;
}

export interface ReplayOrder {
  ids: Array<string>;
  every: boolean;
  confirmed: boolean;
}

export interface Replayed {
  id: string;
  outcome: "failed_again" | "gone" | "handled";
  before: string;
  after: string;
}

export interface ReplayReport {
  replayed: Array<Replayed>;
}

export interface Rung {
  rung: string;
  name: string;
  status: "failed" | "not_run" | "passed" | "running" | "waiting";
  code: string;
  message: string;
}

export interface ProposalPicture {
  id: string;
  src: string;
  title: string;
  reason: string;
  round: number;
  files: Array<string>;
  affects: Array<string>;
  status: "accepted" | "countered" | "deferred" | "pending" | "refused" | "rejected" | "superseded";
  stage: "arbiter" | "decided" | "gate" | "proposed" | "votes";
  checks: Array<Array<Rung>>;
  votes: Array<Vote>;
  steps: Array<string>;
  outcome: string;
  parent: string;
  diff: string;
  cost_usd: null | number;
}

export interface Cost {
  spent_usd: number;
  cap_usd: number;
  calls: number;
  requests: number;
  cached: number;
  tokens: number;
  unpriced: number;
}

export interface NegotiationPicture {
  session: string;
  state: "ended" | "none" | "running";
  sessions: Array<string>;
  round: number;
  intent: string;
  backend: string;
  agents: Array<string>;
  arbiters: Array<string>;
  proposals: Array<ProposalPicture>;
  cost: Cost;
  activity: string;
  ending: string;
  notes: Array<string>;
  note: string;
}

export interface Choice {
  name: string;
  title: string;
}

export interface Difference {
  kind: "added" | "count" | "failures" | "fields" | "handlers" | "removed";
  topic: string;
  text: string;
  left: string;
  right: string;
}

export interface Comparison {
  choices: Array<Choice>;
  left: string;
  right: string;
  differences: Array<Difference>;
  same: Array<string>;
  note: string;
}
