/** Colours of the page: as the system has them, light, or dark. Kept for the next visit, for all pages. */

import { $ } from "./dom.js";

const KEY = "hubbub.theme";
const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").title = `Colours: ${theme}`;
  try { localStorage.setItem(KEY, theme); } catch { /* only this time, then */ }
}

/** Shows the kept colours, and has the button change them. */
export function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem(KEY); } catch { /* as the system has it */ }
  setTheme(THEMES.includes(kept) ? kept : "auto");
  $("theme").addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
  });
}
