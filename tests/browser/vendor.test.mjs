/** What others wrote and the pages bring along is what they published, in the version that package-lock.json has the hash of. */

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const VENDOR = fileURLToPath(new URL("../../web/vendor/", import.meta.url));
const PUBLISHED = fileURLToPath(new URL("node_modules/", import.meta.url));
const MANIFEST = new URL("package.json", import.meta.url);

/** Where the package has each file. */
const FILES = { uplot: { "LICENSE": "LICENSE", "uPlot.iife.min.js": "dist/uPlot.iife.min.js", "uPlot.min.css": "dist/uPlot.min.css" } };

test("vendored files are those of the published packages", async () => {
  assert.deepEqual(await readdir(VENDOR), Object.keys(FILES));
  const { devDependencies } = JSON.parse(await readFile(MANIFEST, "utf8"));
  for (const [name, files] of Object.entries(FILES)) {
    assert.deepEqual((await readdir(VENDOR + name)).sort(), Object.keys(files).sort(), name);
    const { version } = JSON.parse(await readFile(`${PUBLISHED}${name}/package.json`, "utf8"));
    assert.equal(devDependencies[name], version, "one version, not a range");
    for (const [file, original] of Object.entries(files)) {
      const [ours, theirs] = await Promise.all([readFile(`${VENDOR}${name}/${file}`), readFile(`${PUBLISHED}${name}/${original}`)]);
      assert.ok(ours.equals(theirs), `${name}/${file} is not that of ${name} ${version}`);
    }
  }
});
