/** Starts the page of the API: loads, shows and filters both documents. */

import { $, make, setText } from "../app/dom.js";
import { startTheme } from "../app/theme.js";
import { prose } from "./text.js";
import { schemaArticles } from "./schema.js";
import { methodBadge, operationArticle, operationsOf, pathNodes } from "./operations.js";
import { channelSection, closeCodes, direction, framesOf, table } from "./sockets.js";

async function load(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} was answered with ${response.status}`);
  return response.json();
}

function errorTable(openapi) {
  const codes = openapi.components.schemas.Problem.properties.code["x-codes"];
  return make("article", { id: "errors", "data-search": `errors problems codes ${codes.map((one) => one.code).join(" ")}` },
    make("h2", {}, "Errors"),
    ...prose("`application/problem+json` with a stable `code`. Where retry says yes, the same again with the same `messageId` can succeed, and is stored once."),
    table(["Code", "Status", "Retry", "Meaning"], codes.map((one) => [
      make("code", {}, one.code), String(one.status), one.retryable ? "yes" : "no", make("span", {}, ...prose(one.meaning)),
    ])));
}

/** All articles, and the contents: groups of links to them. */
function build(openapi, asyncapi) {
  const operations = operationsOf(openapi);
  const groups = openapi.tags.map((tag) => {
    const mine = operations.filter((operation) => operation.tags.includes(tag.name));
    return {
      title: tag.name,
      section: make("section", { id: `tag-${tag.name}` },
        make("header", {}, make("h2", {}, tag.name), ...prose(tag.description)),
        ...mine.map((operation) => operationArticle(openapi, operation))),
      links: mine.map((operation) => [operation.operationId, methodBadge(operation.method), ...pathNodes(operation.path.replace(/^\/v1/, ""))]),
    };
  });
  for (const name of Object.keys(asyncapi.channels)) {
    const frames = framesOf(asyncapi, name);
    groups.push({
      title: `Frames of ${asyncapi.channels[name].address}`,
      section: channelSection(asyncapi, name),
      links: frames.map(({ key, isFromClient }) => [`frame-${key}`, direction(isFromClient), key]),
    });
  }
  groups.push({
    title: "Reference",
    section: make("section", {}, errorTable(openapi), closeCodes(asyncapi)),
    links: [["errors", "Errors"], ["close-codes", "Close codes"]],
  });
  const schemas = openapi.components.schemas;
  groups.push({
    title: "Schemas",
    section: make("section", { class: "schemas" }, make("header", {}, make("h2", {}, "Schemas")), ...schemaArticles(schemas)),
    links: Object.keys(schemas).map((name) => [`schema-${name}`, name]),
  });
  return groups;
}

function intro(openapi) {
  return make("header", { class: "intro" },
    make("h1", {}, "Hubbub API"),
    make("p", { class: "meta-line" }, `version ${openapi.info.version}`, " · ",
      make("a", { href: "/openapi.json" }, "openapi.json"), " · ", make("a", { href: "/asyncapi.json" }, "asyncapi.json")),
    ...prose(openapi.info.description));
}

function show(openapi, groups) {
  $("main").replaceChildren(intro(openapi), ...groups.map((group) => group.section), make("p", { id: "no-match", class: "loading", hidden: true }, "Nothing matches."));
  $("contents").replaceChildren(...groups.map((group) => make("div", { class: "group" },
    make("h2", {}, group.title),
    make("ul", {}, ...group.links.map(([id, ...nodes]) => make("li", {}, make("a", { href: `#${id}` }, ...nodes)))))));
  $("main").removeAttribute("aria-busy");
}

/** Hides articles that lack a word of the filter, and empty groups. */
function filter(text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const articles = [...$("main").querySelectorAll("article")];
  let shown = 0;
  for (const article of articles) {
    article.hidden = !wanted.every((word) => article.dataset.search.includes(word));
    if (!article.hidden) shown += 1;
    const link = $("contents").querySelector(`a[href="#${article.id}"]`);
    if (link) link.parentElement.hidden = article.hidden;
  }
  for (const section of $("main").querySelectorAll(":scope > section")) {
    section.hidden = !section.querySelector("article:not([hidden])");
  }
  for (const group of $("contents").children) group.hidden = !group.querySelector("li:not([hidden])");
  $("main").querySelector(".intro").hidden = wanted.length > 0;
  $("no-match").hidden = shown > 0;
  setText($("count"), wanted.length ? `${shown} of ${articles.length}` : "");
}

/** Marks the visible article in the contents. */
function follow() {
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const link = $("contents").querySelector(`a[href="#${entry.target.id}"]`);
      if (!link || !entry.isIntersecting) continue;
      $("contents").querySelector("[aria-current]")?.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
      // Only the list itself scrolls, not the page.
      const box = $("contents-box");
      if (link.offsetTop < box.scrollTop || link.offsetTop > box.scrollTop + box.clientHeight - 40) box.scrollTop = link.offsetTop - box.clientHeight / 2;
    }
  }, { rootMargin: "-15% 0px -80% 0px" });
  $("main").querySelectorAll("article").forEach((article) => watcher.observe(article));
}

/** On narrow screens the contents overlay the page. They open on request, and close after a choice. */
function startContents() {
  const narrow = matchMedia("(max-width: 820px)");
  const fit = () => { $("contents-box").open = !narrow.matches; };
  narrow.addEventListener("change", fit);
  fit();
  $("contents").addEventListener("click", (event) => { if (event.target.closest("a")) fit(); });
}

startTheme();
startContents();
try {
  const [openapi, asyncapi] = await Promise.all([load("/openapi.json"), load("/asyncapi.json")]);
  show(openapi, build(openapi, asyncapi));
  follow();
  $("filter").addEventListener("input", () => filter($("filter").value));
  addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== $("filter")) {
      event.preventDefault();
      $("filter").focus();
    }
    if (event.key === "Escape" && document.activeElement === $("filter")) {
      $("filter").value = "";
      filter("");
    }
  });
  // Scroll only now: the target of the address did not exist before.
  if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
} catch (error) {
  $("main").replaceChildren(make("p", { class: "loading" }, `The documents cannot be shown: ${error.message}`));
}
