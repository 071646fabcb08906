/** Starts the dashboard: asks for a token if one is needed, then shows what one stream of the server brings. */

import { $, setStatus, setText } from "../app/dom.js";
import { age } from "../app/format.js";
import { askWhoCalls, logOut } from "../app/login.js";
import { sentenceOf } from "../app/request.js";
import { startTheme } from "../app/theme.js";
import { whoCalls } from "../app/token.js";
import { Chart } from "./charts.js";
import { Connections } from "./connections.js";
import { Figures } from "./figures.js";
import { ApiKeys } from "./keys.js";
import { Logins } from "./logins.js";
import { PANELS } from "./panels.js";
import { Health, Refusals, Top } from "./state.js";

const FOR_WHOM = "The dashboard is for administrators.";

const figures = new Figures();
const [health, refusals] = [new Health(), new Refusals()];
const [topRooms, topUsers] = [new Top("top-rooms", "Room", "roomId", "No room holds a message."), new Top("top-users", "User", "userId", "Nobody has written.")];
const [connections, keys, logins] = [new Connections(), new ApiKeys(), new Logins()];
let charts = [];
/** The server's version, and when it began by the reader's clock. */
let program = { version: "", begunAt: new Date() };
let range = "recent";

/** Panels are made once it is known which series the server has. */
function makeCharts() {
  const known = PANELS.filter((panel) => panel.labels.some(([name]) => figures.series.has(name)));
  charts.forEach((chart) => chart.destroy());
  charts = known.map((panel) => new Chart(panel, figures, (text) => setText($("spoken"), text)));
  $("panels").replaceChildren(...charts.map((chart) => chart.element));
}

function show(wanted) {
  range = wanted;
  for (const button of $("range").children) button.setAttribute("aria-pressed", String(button.dataset.range === range));
  charts.forEach((chart) => { chart.range = range; });
}

function showLive(isLive) {
  $("live").classList.toggle("waiting", !isLive);
  setText($("live"), isLive ? "live" : "reconnecting");
}

/** Says who is none. Their login stays: it is good for the chat. */
function turnAway({ userId, account }) {
  setText($("whose"), userId ?? account ?? "Whoever has this token");
  setStatus($("turned-away-hint"), "");
  $("turned-away").hidden = false;
}

async function changeUser() {
  try {
    await logOut();
  } catch (error) {
    return setStatus($("turned-away-hint"), `You are still logged in: ${sentenceOf(error)}`, true);
  }
  $("turned-away").hidden = true;
  await askWhoCalls(enter, FOR_WHOM);
}

/** Lets in whoever is an administrator. */
async function enter(caller) {
  if (caller === null || caller?.admin === false) {
    $("app").hidden = true;
    return caller ? turnAway(caller) : askWhoCalls(enter, FOR_WHOM);
  }
  $("app").hidden = false;
  figures.open();
  connections.look();
  keys.look();
  logins.look();
}

figures.on("begun", ({ version, uptimeSeconds }) => {
  program = { version, begunAt: new Date(Date.now() - uptimeSeconds * 1_000) };
  makeCharts();
  show(range);
});
figures.on("figures", () => {
  if (document.visibilityState !== "visible") return;
  setText($("version"), `version ${program.version}, up for ${age(program.begunAt)}`);
  charts.forEach((chart) => chart.draw());
  refusals.show(figures);
});
figures.on("state", ({ components, topRooms: rooms, topUsers: users }) => {
  health.show(components);
  topRooms.show(rooms);
  topUsers.show(users);
});
figures.on("live", showLive);
figures.on("refused", enter);
$("change-user").addEventListener("click", changeUser);
for (const button of $("range").children) button.addEventListener("click", () => show(button.dataset.range));
document.addEventListener("visibilitychange", () => charts.forEach((chart) => chart.draw()));

startTheme();
const repaint = () => requestAnimationFrame(() => charts.forEach((chart) => chart.redraw()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
$("theme").addEventListener("click", repaint);
enter(await whoCalls());
