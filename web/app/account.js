/** The dialog about one's own account: another password, and where one is logged in. */

import { $, make, setStatus } from "./dom.js";
import { dialogHead, showDialog } from "./dialogs.js";
import { briefly, browserName, exact } from "./format.js";
import { ask, remove, sentenceOf } from "./request.js";

const PASSWORD_CHARS_MIN = 12;

/** @param caller who logged in: `{account, loginId}` */
export function showAccount({ account, loginId }) {
  const dialog = $("account-dialog");
  const list = make("ul", { class: "logins" });
  const status = make("p", { class: "hint", role: "status" });
  const look = async () => {
    try {
      const { logins } = await ask("GET", `auth/logins?user=${encodeURIComponent(account)}`);
      logins.sort((a, b) => b.createdAt.localeCompare(a.createdAt));
      list.replaceChildren(...logins.map((login) => item(login, login.loginId === loginId, end)));
    } catch (error) {
      setStatus(status, sentenceOf(error), true);
    }
  };
  const end = async (login) => {
    try {
      await remove(`auth/logins/${login.loginId}`);
      setStatus(status, "Logged out there.");
    } catch (error) {
      return setStatus(status, sentenceOf(error), true);
    }
    await look();
    // Its button is gone.
    list.querySelector("button")?.focus();
  };
  showDialog(dialog, dialogHead(`Account ${account}`, "account-dialog-title", dialog),
    make("div", { class: "account" }, make("h3", {}, "Logged in"), list, status, passwordForm(account, look)));
  return look();
}

function item(login, isThis, end) {
  const [name, at] = [browserName(login.userAgent), new Date(login.createdAt)];
  const since = make("small", { title: exact(at) }, `since ${briefly(at)}, from ${login.address}`);
  return make("li", { "data-login": login.loginId }, make("span", { class: "person" }, make("b", {}, name), since),
    isThis ? make("em", {}, "here")
      : make("button", { type: "button", class: "danger", "aria-label": `Log out ${name}, since ${briefly(at)}`, click: () => end(login) }, "Log out"));
}

function passwordForm(account, onChanged) {
  const hint = make("p", { class: "hint", role: "status" });
  const field = (id, label, attributes) => [make("label", { for: id }, label), make("div", { class: "field" },
    make("input", { id, type: "password", required: true, maxlength: 256, ...attributes }))];
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    const [current, password] = [$("current-password").value, $("new-password").value];
    try {
      await ask("PUT", `auth/accounts/${encodeURIComponent(account)}/password`, { current, password });
      form.reset();
      setStatus(hint, "Changed. You are logged out everywhere else.");
      await onChanged();
    } catch (error) {
      const isWrong = error.code === "invalid" && error.message.includes("current");
      setStatus(hint, isWrong ? "The current password is wrong." : sentenceOf(error), true);
    }
  };
  return make("form", { id: "change-password", submit }, make("h3", {}, "Change the password"),
    make("input", { type: "text", name: "username", autocomplete: "username", value: account, hidden: true, readonly: true }),
    ...field("current-password", "Current password", { autocomplete: "current-password" }),
    ...field("new-password", "New password", { autocomplete: "new-password", minlength: PASSWORD_CHARS_MIN }),
    hint, make("button", { class: "primary", type: "submit" }, "Change"));
}
