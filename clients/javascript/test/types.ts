/** Compiles if the types say what the client takes and returns. */

import { Client, type Delivery, HubbubError, type KeyEvent, type Receipt } from "hubbub-client";

export async function all(): Promise<void> {
  const hubbub = new Client("http://127.0.0.1:8080", { token: "t", backoffMax: 5_000 });
  const receipt: Receipt = await hubbub.room("lobby").send("hello", { messageId: "m", signal: AbortSignal.timeout(1) });
  for await (const event of hubbub.room("lobby").subscribe({ after: receipt.seq ?? 0, onReset: "live" })) {
    if (event.type === "message") console.log(event.message.seq + 1);
    else if (event.type === "reset") console.log(event.historyReplaced, event.head);
    // @ts-expect-error: `ready` has no message
    if (event.type === "ready") console.log(event.message);
  }
  const jobs = hubbub.queue("jobs");
  await jobs.create({ leaseMs: 1_000, onFull: "dropOldest" });
  const [delivery]: Delivery[] = await jobs.take({ max: 1 });
  await delivery?.ack();
  await jobs.poll(async (job) => job.extend(1_000), { onError: (error: HubbubError) => console.log(error.code) });
  const found = await hubbub.keys.get("k");
  // @ts-expect-error: there may be no such key
  console.log(found.revision);
  await hubbub.keys.put("k", new Uint8Array(1), { revision: found?.revision ?? 0, ttl: 5 });
  const { keys, next } = await hubbub.keys.list({ prefix: "k", after: { encoded: "k%FF" } });
  for (const { key } of keys) await hubbub.keys.delete(key);
  // @ts-expect-error: a key may be no text
  for (const { key } of keys) console.log(key.length);
  if (next !== null) await hubbub.keys.list({ after: next });
  for await (const change of hubbub.keys.watch({ prefix: "k" })) console.log((change satisfies KeyEvent).type);
}
