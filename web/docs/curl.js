/** Turns an example of `/openapi.json` into a command. */

/** The only media type of a body, with its content. */
export const contentOf = (body) => Object.entries(body?.content ?? {})[0] ?? [null, null];

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** `curl …`, or the address of a socket. */
export function curl(operation, { name, status, media }) {
  const query = new URLSearchParams();
  const parts = [];
  let { path } = operation;
  for (const parameter of operation.parameters ?? []) {
    const example = parameter.examples?.[name];
    if (!example) continue;
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(example.value));
    else if (parameter.in === "query") query.append(parameter.name, example.value);
    else parts.push(`-H ${quote(`${parameter.name}: ${example.value}`)}`);
  }
  const address = location.origin + path + (query.size ? `?${query}` : "");
  if (status === "101") return address.replace(/^http/, "ws");
  const [, content] = contentOf(operation.requestBody);
  const data = content?.examples?.[name]?.value;
  const implied = data === undefined ? "get" : "post";
  if (operation.method !== implied) parts.push(`-X ${operation.method.toUpperCase()}`);
  if (data !== undefined) parts.push(`--data-binary ${quote(typeof data === "string" ? data : JSON.stringify(data))}`);
  if (media === "text/event-stream") parts.push("-N");
  return `curl ${[quote(address), ...parts].join(" \\\n  ")}`;
}
