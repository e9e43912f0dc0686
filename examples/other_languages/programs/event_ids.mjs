// An agent in JavaScript: it rejects changes that publish an event without an id.
// An event without one cannot be told from a repetition of another.
import { createInterface } from "node:readline";

let name = "";

const PUBLISH = /\.publish\(\s*"([^"]+)"\s*,\s*\{([^}]*)\}/gs;
const HAS_ID = /"(?:\w+_)?id"\s*:/;

/** Return the topics that a text publishes without an id. */
function topicsWithoutId(text) {
  return [...text.matchAll(PUBLISH)].filter(([, , fields]) => !HAS_ID.test(fields)).map(([, topic]) => topic);
}

function judge(trial, round) {
  const { proposal } = trial;
  const changes = [proposal.code_change, ...proposal.further_code_changes].filter(Boolean);
  const topics = changes.flatMap((change) => topicsWithoutId(change.new_code));
  return {
    proposal_id: proposal.proposal_id,
    evaluator: name,
    round,
    decision: topics.length ? "reject" : "accept",
    confidence: 0.9,
    reasoning: topics.length ? `${topics.join(", ")} would be published without an id.` : "Every event has an id.",
  };
}

const methods = {
  "agent/hello": ({ agent }) => {
    name = agent;
    return { protocol: 1, agent, capabilities: ["evaluate"], program: "event_ids 1.0" };
  },
  "agent/evaluate": ({ view, trials }) => ({ evaluations: trials.map((trial) => judge(trial, view.round)) }),
  "agent/bye": () => ({}),
};

function answer(message) {
  const method = methods[message.method];
  if (!method) return { error: { code: -32601, message: `there is no ${message.method}` } };
  return { result: method(message.params) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.id === undefined) continue; // a notification
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: message.id, ...answer(message) })}\n`);
  if (message.method === "agent/bye") break;
}
