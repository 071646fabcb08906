/** Requests of the socket's client. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Hubbub } from "../hubbub.js";

test("who has only a token asks whose it is, and nobody is called undefined", async () => {
  const asked = [];
  const answers = new Map([["/v1/auth/me", { userId: "ada lovelace" }], ["/v1/users/ada%20lovelace/rooms?limit=3", { rooms: [] }]]);
  const fetch = async (url, { method }) => {
    const path = url.slice("http://h".length);
    asked.push(`${method} ${path}`);
    return method === "GET" ? Response.json(answers.get(path)) : new Response(null, { status: 204 });
  };
  const hubbub = new Hubbub({ url: "http://h", token: "t", fetch });
  assert.deepEqual(await hubbub.myRooms({ limit: 3 }), { rooms: [] });
  assert.equal(await hubbub.addMember("a b"), undefined);
  await hubbub.removeMember("a b");
  await hubbub.removeMember("a b", "bob");
  const [me, member] = ["GET /v1/auth/me", "/v1/rooms/a%20b/members"];
  assert.deepEqual(asked, [
    me, "GET /v1/users/ada%20lovelace/rooms?limit=3", me, `PUT ${member}/ada%20lovelace`, me, `DELETE ${member}/ada%20lovelace`,
    `DELETE ${member}/bob`,
  ]);
  // As an administrator's is.
  answers.set("/v1/auth/me", { userId: null });
  await assert.rejects(hubbub.myRooms(), { code: "invalid", retryable: false });
  asked.length = 0;
  await new Hubbub({ url: "http://h", user: "ann", fetch }).addMember("r");
  assert.deepEqual(asked, ["PUT /v1/rooms/r/members/ann"]);
});

test("an empty success is not the server's, unless it says so", async () => {
  for (const text of ["", "<html>"]) {
    const hubbub = new Hubbub({ url: "http://h", user: "ada", fetch: async () => new Response(text) });
    for (const call of [() => hubbub.deleteRoom("r"), () => hubbub.addMember("r"), () => hubbub.history("r")]) {
      await assert.rejects(call, { code: "unexpected", status: 200, retryable: true });
    }
  }
});

test("a name that a path loses is refused before it changes something else", async () => {
  const hubbub = new Hubbub({ url: "http://h", user: "..", fetch: () => assert.fail("asked") });
  for (const call of [() => hubbub.deleteRoom("."), () => hubbub.removeMember("r"), () => hubbub.history("..")]) {
    await assert.rejects(call, { code: "invalid", message: "name must not be . or .., which a path loses" });
  }
});

test("a redirection is not followed, and names where to", async () => {
  const asked = [];
  const elsewhere = (status) => () => new Response(null, { status, headers: { location: "https://other.example/" } });
  const opaque = () => ({ type: "opaqueredirect", status: 0, ok: false, headers: new Headers(), text: async () => "" });
  const named = /redirects to https:\/\/other.example\//;
  // A browser does not tell whether it is for good.
  const answers = [[elsewhere(301), named, false], [elsewhere(307), named, true], [opaque, /redirects elsewhere/, true]];
  for (const [answer, message, retryable] of answers) {
    const fetch = async (url, { redirect }) => {
      asked.push(redirect);
      return answer();
    };
    await assert.rejects(new Hubbub({ url: "http://h", user: "ada", fetch }).putRoom("r"), { code: "unexpected", retryable, message });
  }
  assert.deepEqual(asked, ["manual", "manual", "manual"]);
});
