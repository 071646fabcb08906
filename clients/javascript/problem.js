/** What a refusal says, whoever it is of. */

/** Codes of answers that are not the server's, such as a proxy's, or have no body, as those to `HEAD`. */
const CODES = new Map([
  [401, "unauthorized"], [403, "forbidden"], [404, "not_found"], [408, "request_timeout"], [429, "too_many_requests"],
  [501, "not_supported"],
]);

/** Whether a status alone says that the same may succeed later. */
const isRetryable = (status) => status === 408 || status === 429 || (status >= 500 && status !== 501);

/** The problem that a refusal with this status and body is, with the type of a body that is not the server's, or is none. */
export function problemOf(status, text, contentType = "") {
  const detail = text.slice(0, 200) || `the server answered ${status}`;
  const base = { code: CODES.get(status) ?? "unexpected", detail, retryable: isRetryable(status) };
  let problem;
  try { problem = JSON.parse(text); } catch { /* a proxy's words */ }
  if (typeof problem?.code === "string") return { ...base, detail: undefined, ...problem, status };
  return { ...base, status, contentType };
}
