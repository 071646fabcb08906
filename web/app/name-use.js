/** Whether somebody goes by a name already. Nobody has to prove who they are, so whoever takes such a name is told. */

import { Hubbub } from "../hubbub.js";

/** Rooms of the user in which presence is looked up. */
const ROOMS_MAX = 20;

/**
 * What is known of the id: `"here"` = connected now, `"before"` = a member of rooms or the sender of messages, `null` =
 * nothing, also when the server does not answer.
 * @param {string[]} rooms further rooms in which the user may be present
 */
export async function useOf(user, rooms) {
  const client = new Hubbub({ user });
  const [memberships, messages] = await Promise.allSettled([
    client.myRooms({ limit: ROOMS_MAX }),
    client.request("GET", `/users/${encodeURIComponent(user)}/messages?limit=1`),
  ]);
  const own = memberships.value?.rooms.map((room) => room.roomId) ?? [];
  // Rooms that nobody made, or that are for others only, are refused.
  const present = await Promise.allSettled([...new Set([...own, ...rooms])].map((room) => client.presence(room)));
  if (present.some(({ value }) => value?.users.includes(user))) return "here";
  return own.length > 0 || messages.value?.messages.length > 0 ? "before" : null;
}
