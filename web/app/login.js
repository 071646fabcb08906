/** The form that asks for a token, of every page that needs one. */

import { $, setText } from "./dom.js";
import { setToken, token, whoCalls } from "./token.js";

/** Asks for a token until the server takes one. */
export function askForToken(onTaken) {
  $("login").hidden = false;
  const [input, hint] = [$("token"), $("token-hint")];
  setText(hint, token() === undefined ? " " : "The token has ended, or is not valid.");
  input.value = "";
  input.focus();
  $("token-form").onsubmit = async (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    const caller = await whoCalls();
    if (caller === undefined) return setText(hint, "The server cannot be reached. Try again in a moment.");
    if (caller === null) return setText(hint, "The server does not take this token.");
    $("login").hidden = true;
    onTaken(caller);
  };
}
