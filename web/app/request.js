/** HTTP requests of the Queues and Keys views, and what to say when one fails. */

import { HubbubError } from "../hubbub.js";
import { withToken } from "./token.js";

/** Timeout of a request, in ms. */
const ANSWER_MAX = 15_000;

/** A request under `/v1`. Rejects with a {@link HubbubError}. */
export async function ask(method, path, body) {
  let response;
  let text;
  try {
    response = await fetch(`/v1/${path}`, {
      method,
      signal: AbortSignal.timeout(ANSWER_MAX),
      ...(body === undefined
        ? { headers: withToken() }
        : { headers: withToken({ "content-type": "application/json" }), body: JSON.stringify(body) }),
    });
    text = await response.text();
  } catch (error) {
    throw new HubbubError({ code: "unreachable", detail: error.message, retryable: true });
  }
  const answer = parse(text);
  // A proxy's page, for instance.
  const isStrange = answer === undefined || (!response.ok && typeof answer?.code !== "string");
  if (isStrange) throw new HubbubError({ code: "unexpected", status: response.status, retryable: response.ok || response.status >= 500 });
  if (!response.ok) throw new HubbubError(answer);
  return answer;
}

/** @returns null for nothing, `undefined` for what is no JSON */
function parse(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Deletes something under `/v1` that may be gone already. Rejects like {@link ask}. */
export async function remove(path) {
  try {
    await ask("DELETE", path);
  } catch (error) {
    if (error.code !== "not_found") throw error;
  }
}

/** Whether the server did not answer. */
export const isUnreachable = (error) => error.code === "unreachable";

/** An error as a sentence for the reader. A browser's own words ("Failed to fetch") are not one, nor is a proxy's page. */
export function sentenceOf(error) {
  if (error.code === "unexpected") return `Something that is not the server answered (status ${error.status}). Try again in a moment.`;
  return isUnreachable(error) ? "The server cannot be reached. Try again in a moment." : error.message;
}
