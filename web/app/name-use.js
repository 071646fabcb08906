/** Checks whether a name is in use. There is no authentication, so the page warns whoever takes such a name. */

import { Hubbub } from "../hubbub.js";
import { token } from "./token.js";

/** Most rooms of the user in which presence is checked. */
const ROOMS_MAX = 20;

/**
 * The use of an id: `"here"` = connected now, `"before"` = a member of rooms or a sender of messages, `null` = none,
 * `undefined` = the server did not tell.
 * @param {string[]} rooms further rooms in which the user may be present
 */
export async function useOf(user, rooms) {
  const client = new Hubbub({ user, token: token() });
  const [memberships, messages] = await Promise.allSettled([
    client.myRooms({ limit: ROOMS_MAX }),
    client.request("GET", `/users/${encodeURIComponent(user)}/messages?limit=1`),
  ]);
  if (!memberships.value || !messages.value) return undefined;
  const own = memberships.value.rooms.map((room) => room.roomId);
  // The server refuses rooms that do not exist or are for other members.
  const present = await Promise.allSettled([...new Set([...own, ...rooms])].map((room) => client.presence(room)));
  if (present.some(({ value }) => value?.users.includes(user))) return "here";
  return own.length > 0 || messages.value.messages.length > 0 ? "before" : null;
}
