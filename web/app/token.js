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

/**
 * Who calls, by the token: `{userId, admin, authentication}`. `null` = the server wants a token. `undefined` = it could not
 * be asked.
 */
export async function whoCalls() {
  try {
    const response = await fetch("/v1/auth/me", { headers: withToken() });
    if (response.status === 401) return null;
    return response.ok ? await response.json() : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps the token in a cookie for a while, for streams: they take no headers. */
export async function openSession() {
  if (token() === undefined) return;
  await fetch("/v1/auth/session", { method: "POST", headers: withToken() });
}
