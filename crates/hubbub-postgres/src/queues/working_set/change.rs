//! Every change of a message goes through here, so that order, groups and counts follow.

use std::sync::Arc;

use hubbub_core::queue::DeadLetter;

use super::{Client, Counts, Message, ReceiverQueue, State, WakeTarget, WorkingSet};

/// What of a message order and counts depend on.
struct Stand {
    is_open: bool,
    line: ReceiverQueue,
    counts: Counts,
}

fn stand(message: &Message) -> Stand {
    let counts = if message.is_gone { Counts::default() } else { Counts::of(message) };
    Stand { is_open: message.is_open(), line: message.receiver_queue(), counts }
}

impl Counts {
    /// What one message counts.
    pub(crate) fn of(message: &Message) -> Self {
        let is_expired_delay = message.state == State::Expired && message.due_at.is_some();
        Self {
            messages: 1,
            bytes: message.bytes,
            delayed: i64::from(message.state == State::Delayed || is_expired_delay),
            leased: i64::from(message.state == State::Leased),
            ..Self::default()
        }
    }

    /// Adds what so many messages count.
    pub(crate) fn add(&mut self, one: Self, messages: i64) {
        self.messages += messages * one.messages;
        self.delayed += messages * one.delayed;
        self.leased += messages * one.leased;
        self.bytes += messages * one.bytes;
    }
}

impl WorkingSet {
    /// Takes in what the database has, unless it is there already.
    pub(crate) fn insert(&mut self, message: Message) {
        if self.messages.contains_key(&message.id) {
            return;
        }
        if message.is_open() {
            self.ready.entry(message.receiver_queue()).or_default().insert(message.id);
        }
        if let Some(key) = message.group_key().filter(|_| message.is_alive()) {
            self.groups.entry(key).or_default().alive.insert(message.id);
        }
        self.messages.insert(message.id, message);
    }

    pub(crate) fn add(&mut self, message: Message) {
        self.count(&stand(&message), 1);
        self.insert(message);
    }

    fn count(&mut self, stand: &Stand, sign: i64) {
        self.tally(stand.line.0, |added| added.add(stand.counts, sign));
    }

    /// Changes a message, but for its group.
    pub(crate) fn change(&mut self, id: i64, change: impl FnOnce(&mut Message)) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let before = stand(message);
        change(message);
        message.is_changed = true;
        let after = stand(message);
        self.count(&before, -1);
        self.count(&after, 1);
        if before.is_open
            && (!after.is_open || before.line != after.line)
            && let Some(ids) = self.ready.get_mut(&before.line)
        {
            ids.remove(&id);
        }
        if after.is_open {
            self.ready.entry(after.line).or_default().insert(id);
            if !before.is_open || before.line != after.line {
                self.opened(id, after.line);
            }
        }
    }

    /// A message may be taken from now on that could not before.
    fn opened(&mut self, id: i64, line: ReceiverQueue) {
        let lowest = self.lowered.entry(line).or_insert(id);
        *lowest = (*lowest).min(id);
        match self.wake_target {
            WakeTarget::Outcome => self.freed.push(id),
            WakeTarget::Sweep => {
                self.woken.insert(line.0);
            }
        }
    }

    /// A message leaves its group; the first of the others follows. See [`WorkingSet::can_leave`].
    fn leave_group(&mut self, id: i64) {
        let Some(message) = self.messages.get(&id) else { return };
        let was_first = message.is_alive() && !message.behind;
        let Some(key) = message.group_key() else { return };
        let next = self.groups.get_mut(&key).and_then(|group| {
            group.alive.remove(&id);
            group.alive.first().copied()
        });
        if let Some(next) = next.filter(|_| was_first) {
            self.change(next, |next| next.behind = false);
        }
    }

    /// A message has come back from its lease: it is behind those that a redrive brought back meanwhile. See
    /// [`WorkingSet::can_come_back`].
    pub(crate) fn come_back(&mut self, id: i64) {
        let key = self.messages.get(&id).filter(|message| !message.behind).and_then(Message::group_key);
        let group = key.and_then(|key| self.groups.get(&key));
        let Some(first) = group.and_then(|group| group.alive.first().copied()).filter(|first| *first < id)
        else {
            return;
        };
        self.change(id, |message| message.behind = true);
        self.change(first, |first| first.behind = false);
    }

    pub(crate) fn remove(&mut self, id: i64) {
        self.leave_group(id);
        self.change(id, |message| message.is_gone = true);
        if let Some(first) = self.messages.get(&id).and_then(|message| message.known_as) {
            *self.known_gone.entry(first).or_default() += 1;
        }
    }

    /// A message has outlived its time, and waits to be cleared away.
    pub(crate) fn expire(&mut self, id: i64) {
        self.leave_group(id);
        self.change(id, |message| {
            (message.state, message.behind) = (State::Expired, false);
        });
    }

    /// Moves a message to another queue, where it may be taken at once. See [`WorkingSet::can_join`].
    pub(crate) fn move_to(&mut self, id: i64, to: i32, dead: Option<DeadLetter>) {
        self.leave_group(id);
        self.change(id, |message| {
            let deliveries = std::mem::take(&mut message.deliveries);
            message.earlier_deliveries = message.earlier_deliveries.saturating_add(deliveries.into());
            (message.queue, message.state, message.dead) = (to, State::Ready, dead);
            (message.due_at, message.begun_at, message.expires_at) = (None, None, None);
            message.behind = message.group.is_some();
        });
        let Some(key) = self.messages.get(&id).and_then(Message::group_key) else { return };
        let alive = &mut self.groups.entry(key).or_default().alive;
        let first = alive.first().copied();
        alive.insert(id);
        let is_behind = first.is_some_and(|first| {
            // As long as one is on lease, none passes it: it is the first, or has the first behind it.
            first < id
                || self.messages.get(&first).is_some_and(|first| first.behind || first.state == State::Leased)
        });
        if !is_behind {
            if let Some(first) = first {
                self.change(first, |first| first.behind = true);
            }
            self.change(id, |message| message.behind = false);
        }
    }

    /// Counts what became of messages.
    pub(crate) fn tally(&mut self, queue: i32, tally: impl FnOnce(&mut Counts)) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            tally(&mut queue.added);
        }
    }

    /// The number for a client who is new, until the database gives one.
    pub(crate) fn next_client(&self) -> i32 {
        -(self.new_clients + 1)
    }

    /// Registers a client who is not, and says the number.
    pub(crate) fn register_client(&mut self, name: &str) -> i32 {
        let next = self.next_client();
        let new_clients = &mut self.new_clients;
        let client = self.clients.entry(name.into()).or_insert_with(|| {
            *new_clients += 1;
            Client { no: next, is_registered: false, is_changed: false }
        });
        self.clients_added += i64::from(!client.is_registered);
        (client.is_registered, client.is_changed) = (true, true);
        let no = client.no;
        self.client_names.entry(no).or_insert_with(|| Arc::from(name));
        no
    }
}
