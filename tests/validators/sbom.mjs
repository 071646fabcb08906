// Checks a bill of materials against the schema of those who wrote the standard: `node sbom.mjs FILE`.
import { readFile } from "node:fs/promises";

import { Spec, Validation } from "@cyclonedx/cyclonedx-library";

const [file] = process.argv.slice(2);
const text = await readFile(file, "utf8");
const version = JSON.parse(text).specVersion;
if (!Object.values(Spec.Version).includes(version)) throw new Error(`${file}: no such version of CycloneDX: ${version}`);
const findings = await new Validation.JsonStrictValidator(version).validate(text) ?? [];
for (const finding of findings) console.error(`${file}:`, finding);
console.log(`bill of materials: ${findings.length} findings`);
process.exitCode = findings.length === 0 ? 0 : 1;
