// Checks the documents of a server with the tools of those who wrote the standards: OpenAPI with Redocly's linter, AsyncAPI
// with its official parser. HUBBUB_BIN names the server's program. Any error is a failure, and so is any warning that is
// not excused below.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Parser } from "@asyncapi/parser";
import { createConfig, lintFromString } from "@redocly/openapi-core";

// Severities of the parser: 0 is an error, 1 a warning; what is less is advice, as that there is a newer standard.
const SEVERITIES = ["error", "warning"];

async function openapi(text) {
  const config = await createConfig({
    extends: ["recommended"],
    rules: {
      // The document has no host: it describes the server it comes from.
      "no-server-example.com": "off",
      // Health checks and documents refuse nothing; sockets answer 101.
      "operation-4xx-response": "off",
      "operation-2xx-response": "off",
      // Examples of what is refused break rules on purpose. The process tests send them all, and compare the answers.
      "no-invalid-media-type-examples": "off",
      "no-invalid-parameter-examples": "off",
    },
  });
  const problems = await lintFromString({ source: text, absoluteRef: "openapi.json", config });
  return problems.map((problem) => {
    const where = problem.location.map((at) => at.pointer ?? "").join(" ");
    return `openapi.json: ${problem.severity} ${problem.ruleId}: ${problem.message} at ${where}`;
  });
}

async function asyncapi(text) {
  const { document, diagnostics } = await new Parser().parse(text);
  const found = diagnostics.filter(({ severity }) => severity in SEVERITIES);
  const lines = found.map(
    ({ code, message, path, severity }) =>
      `asyncapi.json: ${SEVERITIES[severity]} ${code}: ${message} at ${path.join("/")}`,
  );
  if (!document) lines.push("asyncapi.json: the parser refuses it");
  return lines;
}

const dir = await mkdtemp(join(tmpdir(), "hubbub-documents-"));
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HUBBUB_")));
const server = spawn(process.env.HUBBUB_BIN, ["serve", "--listen", "0", "--data", join(dir, "data")], {
  cwd: dir,
  env,
  stdio: ["ignore", "pipe", "inherit"],
});
try {
  let url;
  for await (const line of createInterface({ input: server.stdout })) {
    url = line.replace(/^ready /, "");
    break;
  }
  if (!url) throw new Error("the server did not start");
  const get = async (path) => (await fetch(url + path)).text();
  const findings = [...(await openapi(await get("/openapi.json"))), ...(await asyncapi(await get("/asyncapi.json")))];
  for (const finding of findings) console.error(finding);
  console.log(`documents: ${findings.length} findings`);
  process.exitCode = findings.length === 0 ? 0 : 1;
} finally {
  server.kill();
  await new Promise((ended) => server.once("exit", ended));
  await rm(dir, { recursive: true });
}
