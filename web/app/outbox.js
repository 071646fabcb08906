/**
 * Keeps messages without a receipt over a reload of the page. They are sent again with the same ids, so none is stored
 * twice. It uses `sessionStorage`, because two windows must not send each other's messages.
 */

const KEY = "hubbub.outbox";
const KEPT_MAX = 200;

export function keep(user, outgoing) {
  const kept = outgoing.slice(0, KEPT_MAX).map(({ roomId, messageId, message, messageType, timestamp }) =>
    ({ roomId, messageId, message, messageType, timestamp }));
  try {
    if (kept.length > 0) sessionStorage.setItem(KEY, JSON.stringify({ user, kept }));
    else sessionStorage.removeItem(KEY);
  } catch {
    // The storage is full or forbidden. The messages are still in memory.
  }
}

export function kept(user) {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    return stored.user === user ? stored.kept : [];
  } catch {
    return [];
  }
}
