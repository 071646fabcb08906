/**
 * Messages without a receipt, kept over a reload of the page. They go out again with the same ids, so one that had
 * been stored is not stored twice. In `sessionStorage`: two windows must not each send the other's.
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
    // Storage is full or forbidden: the messages are still in memory.
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
