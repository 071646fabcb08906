/** The token of this tab: asked for where the server wants one, kept until the tab is closed. */

const KEY = "hubbub.token";

export const token = () => {
  try { return sessionStorage.getItem(KEY) ?? undefined; } catch { return undefined; }
};

export function setToken(text) {
  try {
    if (text === undefined) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, text);
  } catch { /* it is asked for again, then */ }
}

/** The headers of a request. */
export const withToken = (headers = {}) => (token() === undefined ? headers : { ...headers, authorization: `Bearer ${token()}` });

/** Timeout of the question who calls, in ms. */
const ANSWER_MAX = 15_000;
/** Pause before it is asked again, in ms; twice that after the next failure, and so on. */
const PAUSE_FIRST = 500;
const PAUSE_MAX = 10_000;

/**
 * Who calls, by the token: `{userId, admin, authentication}`. `null` = the server wants a token. `undefined` = it could not
 * be asked.
 */
export async function whoCalls() {
  try {
    const response = await fetch("/v1/auth/me", { headers: withToken(), signal: AbortSignal.timeout(ANSWER_MAX) });
    if (response.status === 401) return null;
    return response.ok ? await response.json() : undefined;
  } catch {
    return undefined;
  }
}

/** Like {@link whoCalls}, until the server has said it. `onWait` is called when it could not be asked at first. */
export async function whoCallsAtLast(onWait) {
  for (let failures = 0; ; failures++) {
    const caller = await whoCalls();
    if (caller !== undefined) return caller;
    if (failures === 0) onWait();
    await new Promise((resolve) => setTimeout(resolve, Math.min(PAUSE_FIRST * 2 ** failures, PAUSE_MAX)));
  }
}
