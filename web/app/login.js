/** The forms at the door of every page that needs to know who calls: name and password, or a token. */

import { $, make, setStatus, setText } from "./dom.js";
import { ask, sentenceOf } from "./request.js";
import { setToken, token, whoCalls } from "./token.js";

/** Whether people have accounts here. Whoever cannot find out is asked for a token. */
export async function hasAccounts() {
  try {
    return (await ask("GET", "auth/login")).accounts;
  } catch {
    return false;
  }
}

/** Ends the login, if the token is one, then forgets token and cookie. Rejects where the server did not: then one is still in. */
export async function logOut() {
  if (token() === undefined) return;
  await ask("DELETE", "auth/session");
  setToken(undefined);
}

/** Logs in or takes a token until the server knows who calls. `lead` says what for, `said` what became of the last token. */
export async function askWhoCalls(onTaken, lead, said = token() === undefined ? " " : "That has ended. Come in again.") {
  $("login").hidden = false;
  const enter = async (hint) => {
    const caller = await whoCalls();
    if (!caller) return setStatus(hint, caller === null ? "The server does not take this token." : "The server cannot be reached. Try again in a moment.", true);
    $("login").hidden = true;
    onTaken(caller);
  };
  const forms = [passwordForm(), $("token-form")];
  const show = (wanted) => {
    for (const form of forms) {
      form.hidden = form !== wanted;
      setStatus(form.querySelector(".hint"), said);
      if (lead !== undefined) setText(form.querySelector(".lead"), lead);
    }
    const inputs = [...wanted.querySelectorAll("input")];
    (inputs.find((input) => input.value === "") ?? inputs[0]).focus();
  };
  // Somebody whose login has ended is asked for the password only.
  if (token() === undefined) $("login-user").value = "";
  listen(enter, show, forms);
  show(await hasAccounts() ? forms[0] : forms[1]);
}

function listen(enter, show, [password, byToken]) {
  $("token").value = "";
  byToken.onsubmit = async (event) => {
    event.preventDefault();
    const [hint, button] = [$("token-hint"), byToken.querySelector(".primary")];
    // A second token while the first is asked about would be forgotten with it.
    if (button.disabled) return;
    const text = $("token").value.trim();
    // Anything else is no header.
    if (!/^[!-~]+$/.test(text)) return setStatus(hint, "That is not a token.", true);
    button.disabled = true;
    setStatus(hint, "…");
    setToken(text);
    await enter(hint).finally(() => { button.disabled = false; });
  };
  $("use-token").onclick = () => show(byToken);
  password.onsubmit = async (event) => {
    event.preventDefault();
    const [hint, button] = [$("password-hint"), password.querySelector(".primary")];
    if (button.disabled) return;
    button.disabled = true;
    setStatus(hint, "…");
    try {
      const login = await ask("POST", "auth/login", { user: $("login-user").value.trim(), password: $("login-password").value });
      setToken(login.token);
      await enter(hint);
    } catch (error) {
      const said = { unauthorized: "The name or the password is wrong.", too_many_requests: `Too many attempts. ${waitOf(error)}` };
      setStatus(hint, said[error.code] ?? sentenceOf(error), true);
    } finally {
      button.disabled = false;
      $("login-password").value = "";
    }
    if (!$("login").hidden) $("login-password").focus();
  };
}

/** How long to wait, as the server's sentence ends. */
const waitOf = ({ message }) => /[Tt]ry again in .*$/.exec(message)?.[0].replace(/^t/, "T") ?? "Try again later.";

/** Made once, in the frame of the form for tokens. */
function passwordForm() {
  const known = $("password-form");
  if (known) return known;
  const other = $("token-form");
  const input = (id, attributes) => make("div", { class: "field" }, make("input", { id, spellcheck: "false", required: true, ...attributes }));
  const form = make("form", { id: "password-form", class: "card", hidden: true },
    other.querySelector(".logo").cloneNode(), make("h1", {}, other.querySelector("h1").textContent),
    make("p", { class: "lead" }, "Log in with your account."),
    make("label", { for: "login-user" }, "Name"),
    input("login-user", { name: "username", autocomplete: "username", autocapitalize: "none", maxlength: 64 }),
    make("label", { for: "login-password", class: "below" }, "Password"),
    input("login-password", { name: "password", type: "password", autocomplete: "current-password", maxlength: 256 }),
    make("p", { id: "password-hint", class: "hint", role: "status" }),
    make("button", { class: "primary", type: "submit" }, "Log in"),
    make("p", { class: "fine" }, "The login holds for this tab, until you close it. ", make("button", { id: "use-token", class: "link", type: "button" }, "Use a token instead")));
  other.before(form);
  return form;
}
