use std::future::Future;
use std::task::Context;

use futures_util::FutureExt;
use futures_util::task::noop_waker_ref;
use hubbub_core::queue::{LeaseReceipt, QueueSend, Settle, Take, TakeFilter, TakeMode};
use proptest::prelude::*;

use super::*;
use hubbub_core::{ClientId, QueueId};

fn filter(queue: &str, receiver: &str, sender: &str) -> WaitFilter {
    WaitFilter {
        queue: QueueId::new(queue).ok(),
        receiver: ClientId::new(receiver).ok(),
        sender: ClientId::new(sender).ok(),
    }
}

fn is_woken(handle: &WaiterHandle) -> bool {
    std::pin::pin!(handle.woken()).poll(&mut Context::from_waker(noop_waker_ref())).is_ready()
}

pub(super) fn woken(handles: &[WaiterHandle]) -> Vec<usize> {
    (0..handles.len()).filter(|index| is_woken(&handles[*index])).collect()
}

fn notify(consumers: &WaitingConsumers, op: QueueOp<'_>, outcome: QueueOutcome) {
    let mut ops = OpBatch::default();
    ops.push(&Op::Queue(op));
    consumers.notify(&ops, &[Outcome::Queue(outcome)]);
}

fn send_due(consumers: &WaitingConsumers, id: u64, audience: Audience<'_>, due: Due, duplicate: bool) {
    let send = QueueSend {
        queue: "jobs",
        sender: "boss",
        audience,
        text: "t",
        message_id: None,
        due,
        group: None,
        ttl_ms: None,
        registers: true,
    };
    let sent_at = Timestamp::from_micros(5);
    notify(consumers, QueueOp::Send(send), QueueOutcome::Sent { id, copies: 2, sent_at, duplicate });
}

pub(super) fn send(consumers: &WaitingConsumers, id: u64, audience: Audience<'_>) {
    send_due(consumers, id, audience, Due::Now, false);
}

pub(super) fn register(consumers: &Arc<WaitingConsumers>, all: &[(&str, &str, &str)]) -> Vec<WaiterHandle> {
    all.iter().map(|(queue, receiver, sender)| consumers.register(filter(queue, receiver, sender))).collect()
}

#[test]
fn one_message_wakes_the_first_matching_consumer() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(
        &consumers,
        &[("other", "a", ""), ("jobs", "a", "nobody"), ("jobs", "a", ""), ("", "b", ""), ("jobs", "b", "")],
    );
    send(&consumers, 1, Audience::One("b"));
    assert_eq!(woken(&handles), [3]);
    send(&consumers, 2, Audience::Anyone);
    assert_eq!(woken(&handles), [2, 3]);
    send(&consumers, 3, Audience::Anyone);
    assert_eq!(woken(&handles), [2, 3, 4]);
    send(&consumers, 4, Audience::Anyone);
    send(&consumers, 5, Audience::One("stranger"));
    assert_eq!(woken(&handles), [2, 3, 4]);
}

#[test]
fn a_message_to_everybody_wakes_all_of_the_queue() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(
        &consumers,
        &[("jobs", "a", ""), ("jobs", "b", "nobody"), ("other", "c", ""), ("", "d", "boss")],
    );
    send(&consumers, 1, Audience::All);
    assert_eq!(woken(&handles), [0, 3]);
}

#[test]
fn only_new_and_due_messages_wake() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(&consumers, &[("jobs", "a", "")]);
    send_due(&consumers, 1, Audience::Anyone, Due::In(1), false);
    send_due(&consumers, 1, Audience::Anyone, Due::At(Timestamp::from_micros(6)), false);
    send_due(&consumers, 1, Audience::Anyone, Due::Now, true);
    let (receipt, ready) = (LeaseReceipt { id: 1, delivery: 1, epoch: 1 }, Box::default());
    let extend = QueueOp::Settle { queue: "jobs", receipt, how: Settle::Extend { lease_ms: None } };
    notify(&consumers, extend, QueueOutcome::Settled { until: None, ready });
    assert!(!is_woken(&handles[0]));
    send_due(&consumers, 1, Audience::Anyone, Due::At(Timestamp::from_micros(5)), false);
    assert!(is_woken(&handles[0]));
}

#[test]
fn a_freed_message_wakes_its_receiver() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(&consumers, &[("jobs", "a", ""), ("jobs", "b", ""), ("jobs.dead", "c", "")]);
    let freed = |queue: &str, receiver: Option<&str>| Freed {
        queue: queue.into(),
        id: 7,
        sender: "boss".into(),
        receiver: receiver.map(Into::into),
    };
    let receipt = LeaseReceipt { id: 7, delivery: 1, epoch: 1 };
    let nack = QueueOp::Settle { queue: "jobs", receipt, how: Settle::Nack { delay_ms: None } };
    let ready: Box<[Freed]> = [freed("jobs", Some("b")), freed("jobs.dead", None)].into();
    notify(&consumers, nack, QueueOutcome::Settled { until: None, ready });
    assert_eq!(woken(&handles), [1, 2]);
    let filter = TakeFilter { queue: Some("jobs"), receiver: Some("b"), sender: None, newest_first: false };
    let take = QueueOp::Take(Take { wanted: filter, max: 1, how: TakeMode::Away, registers: false });
    let ready: Box<[Freed]> = [freed("jobs", None)].into();
    notify(&consumers, take, QueueOutcome::Taken { messages: Box::default(), ready });
    assert_eq!(woken(&handles), [0, 1, 2]);
}

#[test]
fn a_sweep_or_a_deletion_wakes_the_whole_queue() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(&consumers, &[("jobs", "a", "x"), ("jobs", "b", ""), ("other", "c", "")]);
    notify(&consumers, QueueOp::Sweep, QueueOutcome::Swept { more: false, ready: ["other".into()].into() });
    assert_eq!(woken(&handles), [2]);
    let deleted = QueueOutcome::Deleted { messages: 0, ready: Box::default() };
    notify(&consumers, QueueOp::Delete { queue: "jobs", force: false }, deleted);
    assert_eq!(woken(&handles), [0, 1, 2]);
}

#[test]
fn a_consumer_that_leaves_passes_its_wakeup_on() {
    let consumers = Arc::new(WaitingConsumers::default());
    let mut handles = register(&consumers, &[("jobs", "a", ""), ("jobs", "b", ""), ("jobs", "c", "")]);
    send(&consumers, 1, Audience::Anyone);
    handles.remove(0);
    assert_eq!(woken(&handles), [0]);
    // The same in the middle of an attempt.
    handles[0].begin_attempt();
    handles.remove(0);
    assert_eq!(woken(&handles), [0]);
    handles.remove(0);
    assert!(consumers.is_empty() && consumers.state.lock().idle.is_empty());
}

#[test]
fn a_consumer_that_takes_another_message_passes_its_wakeup_on() {
    let consumers = Arc::new(WaitingConsumers::default());
    let mut handles = register(&consumers, &[("jobs", "a", ""), ("jobs", "b", "")]);
    send(&consumers, 1, Audience::Anyone);
    send(&consumers, 2, Audience::One("a"));
    let first = handles.remove(0);
    first.begin_attempt();
    first.complete([2].into_iter());
    assert_eq!(woken(&handles), [0], "message 1 is still there");
    let second = handles.remove(0);
    second.begin_attempt();
    handles.push(consumers.register(filter("jobs", "c", "")));
    second.complete([1].into_iter());
    assert_eq!(woken(&handles), [0; 0]);
}

#[test]
fn a_consumer_that_finds_nothing_keeps_its_position() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(&consumers, &[("jobs", "a", ""), ("jobs", "b", "")]);
    send(&consumers, 1, Audience::Anyone);
    handles[0].begin_attempt();
    handles[0].end_empty_attempt();
    assert_eq!(woken(&handles), [0; 0]);
    send(&consumers, 2, Audience::Anyone);
    assert_eq!(woken(&handles), [0]);
}

#[test]
fn a_message_during_an_attempt_wakes_again() {
    let consumers = Arc::new(WaitingConsumers::default());
    let handles = register(&consumers, &[("jobs", "a", "")]);
    handles[0].begin_attempt();
    send(&consumers, 1, Audience::Anyone);
    handles[0].end_empty_attempt();
    assert!(is_woken(&handles[0]));
    handles[0].begin_attempt();
    assert!(handles[0].woken().now_or_never().is_none());
}

/// One step of the model.
#[derive(Debug, Clone)]
enum Step {
    /// A consumer registers and begins an attempt, which may end at once.
    Arrive(usize, Option<usize>, bool),
    Send(Option<usize>, Option<usize>),
    Begin(usize),
    /// The take of a begun attempt is executed and answered; newest first or not.
    Finish(usize, bool),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..3_usize;
    let maybe = || proptest::option::of(0..3_usize);
    let step = prop_oneof![
        (who(), maybe(), any::<bool>())
            .prop_map(|(receiver, sender, done)| Step::Arrive(receiver, sender, done)),
        (maybe(), maybe()).prop_map(|(receiver, sender)| Step::Send(receiver, sender)),
        (0..6_usize).prop_map(Step::Begin),
        (0..6_usize, any::<bool>()).prop_map(|(handle, newest)| Step::Finish(handle, newest)),
        (0..6_usize).prop_map(Step::Leave),
    ];
    proptest::collection::vec(step, 0..60)
}

struct Model {
    consumers: Arc<WaitingConsumers>,
    messages: Vec<Freed>,
    waiting: Vec<(WaiterHandle, WaitFilter, bool)>,
}

impl Model {
    fn position(&self, filter: &WaitFilter, newest: bool) -> Option<usize> {
        let mut fitting = (0..self.messages.len()).filter(|index| {
            let message = &self.messages[*index];
            let receiver = filter.receiver.as_ref().map(ClientId::as_str);
            accepts_sender(filter, &message.sender)
                && message.receiver.as_deref().is_none_or(|for_whom| Some(for_whom) == receiver)
        });
        if newest { fitting.next_back() } else { fitting.next() }
    }

    fn finish(&mut self, index: usize, newest: bool) {
        let found = self.position(&self.waiting[index].1, newest);
        match found {
            Some(found) => {
                let (id, (handle, ..)) = (self.messages.remove(found).id, self.waiting.remove(index));
                handle.complete([id].into_iter());
            }
            None => {
                self.waiting[index].0.end_empty_attempt();
                self.waiting[index].2 = false;
            }
        }
    }
}

proptest! {
    /// After any sequence of steps: when no consumer is woken or trying, none waits for an available message.
    #[test]
    fn no_idle_consumer_matches_an_available_message(steps in steps()) {
        let names = ["ann", "bob", "cyd"];
        let mut model = Model { consumers: Arc::default(), messages: Vec::new(), waiting: Vec::new() };
        let mut id = 0;
        for step in steps {
            match step {
                Step::Arrive(receiver, sender, is_done) => {
                    let filter = filter("jobs", names[receiver], sender.map_or("", |sender| names[sender]));
                    let handle = model.consumers.register(filter.clone());
                    handle.begin_attempt();
                    model.waiting.push((handle, filter, true));
                    if is_done {
                        model.finish(model.waiting.len() - 1, false);
                    }
                }
                Step::Send(receiver, sender) => {
                    id += 1;
                    let message = Freed {
                        queue: "jobs".into(),
                        id,
                        sender: sender.map_or("dan", |sender| names[sender]).into(),
                        receiver: receiver.map(|receiver| names[receiver].into()),
                    };
                    model.messages.push(message.clone());
                    let settled = QueueOutcome::Settled { until: None, ready: [message].into() };
                    notify(&model.consumers, QueueOp::Sweep, settled);
                }
                Step::Begin(index) => {
                    if let Some((handle, _, is_trying)) = model.waiting.get_mut(index)
                        && !*is_trying && is_woken(handle)
                    {
                        handle.begin_attempt();
                        *is_trying = true;
                    }
                }
                Step::Finish(index, newest) => {
                    if model.waiting.get(index).is_some_and(|(_, _, is_trying)| *is_trying) {
                        model.finish(index, newest);
                    }
                }
                Step::Leave(index) => {
                    if index < model.waiting.len() {
                        model.waiting.remove(index);
                    }
                }
            }
        }
        while let Some(index) = model.waiting.iter().position(|(handle, _, is_trying)| *is_trying || is_woken(handle)) {
            // An attempt that is under way is not begun again: that would lose its wakeup.
            if !model.waiting[index].2 {
                model.waiting[index].0.begin_attempt();
            }
            model.finish(index, index % 2 == 0);
        }
        for (_, filter, _) in &model.waiting {
            prop_assert_eq!(model.position(filter, false), None, "{:?} waits", filter);
        }
    }
}
