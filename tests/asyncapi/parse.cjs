// Reads AsyncAPI documents with the official parser, and prints what it says of each as one JSON list.
//   node parse.cjs FILE...
"use strict";
const { readFileSync } = require("node:fs");
const { Parser } = require("@asyncapi/parser");

const SEVERITIES = ["error", "warning", "information", "hint"];

async function main(files) {
  const parser = new Parser();
  const found = [];
  for (const file of files) {
    const { document, diagnostics } = await parser.parse(readFileSync(file, "utf8"));
    found.push({
      file,
      isRead: document !== undefined,
      operations: document ? document.operations().all().map((each) => each.id()) : [],
      diagnostics: diagnostics.map((each) => ({
        severity: SEVERITIES[each.severity],
        code: String(each.code),
        path: each.path.join("/"),
        message: each.message,
      })),
    });
  }
  process.stdout.write(`${JSON.stringify(found, null, 2)}\n`);
}

main(process.argv.slice(2)).catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exitCode = 1;
});
