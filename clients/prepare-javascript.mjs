/** Puts the socket's code of the chat page into the package: npm packs no files from outside of its folder. */

import { copyFileSync, existsSync } from "node:fs";

const page = new URL("../web/hubbub.js", import.meta.url);
// Whoever installs the packed package has the copy, and no page.
if (existsSync(page)) copyFileSync(page, new URL("javascript/hubbub.js", import.meta.url));
