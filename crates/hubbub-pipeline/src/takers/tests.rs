use std::future::Future;
use std::task::Context;

use futures_util::FutureExt;
use futures_util::task::noop_waker_ref;
use hubbub_core::queue::{LeaseReceipt, QueueSend, Settle};
use proptest::prelude::*;

use super::*;
use hubbub_core::{ClientId, QueueId};

fn wants(queue: &str, receiver: &str, sender: &str) -> Wants {
    Wants {
        queue: QueueId::new(queue).ok(),
        receiver: ClientId::new(receiver).ok(),
        sender: ClientId::new(sender).ok(),
    }
}

fn is_called(place: &Place) -> bool {
    std::pin::pin!(place.called()).poll(&mut Context::from_waker(noop_waker_ref())).is_ready()
}

pub(super) fn called(places: &[Place]) -> Vec<usize> {
    (0..places.len()).filter(|index| is_called(&places[*index])).collect()
}

fn notice(takers: &Takers, op: QueueOp<'_>, outcome: QueueOutcome) {
    let mut ops = OpBatch::default();
    ops.push(&Op::Queue(op));
    takers.notice(&ops, &[Outcome::Queue(outcome)]);
}

fn send_due(takers: &Takers, id: u64, audience: Audience<'_>, due: Due, duplicate: bool) {
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
    notice(takers, QueueOp::Send(send), QueueOutcome::Sent { id, copies: 2, sent_at, duplicate });
}

pub(super) fn send(takers: &Takers, id: u64, audience: Audience<'_>) {
    send_due(takers, id, audience, Due::Now, false);
}

pub(super) fn line_up(takers: &Arc<Takers>, all: &[(&str, &str, &str)]) -> Vec<Place> {
    all.iter().map(|(queue, receiver, sender)| takers.line_up(wants(queue, receiver, sender))).collect()
}

#[test]
fn one_message_calls_the_first_who_may_have_it() {
    let takers = Arc::new(Takers::default());
    let places = line_up(
        &takers,
        &[("other", "a", ""), ("jobs", "a", "nobody"), ("jobs", "a", ""), ("", "b", ""), ("jobs", "b", "")],
    );
    send(&takers, 1, Audience::One("b"));
    assert_eq!(called(&places), [3]);
    send(&takers, 2, Audience::Anyone);
    assert_eq!(called(&places), [2, 3]);
    send(&takers, 3, Audience::Anyone);
    assert_eq!(called(&places), [2, 3, 4]);
    send(&takers, 4, Audience::Anyone);
    send(&takers, 5, Audience::One("stranger"));
    assert_eq!(called(&places), [2, 3, 4]);
}

#[test]
fn a_message_to_everybody_calls_all_of_the_queue() {
    let takers = Arc::new(Takers::default());
    let places = line_up(
        &takers,
        &[("jobs", "a", ""), ("jobs", "b", "nobody"), ("other", "c", ""), ("", "d", "boss")],
    );
    send(&takers, 1, Audience::All);
    assert_eq!(called(&places), [0, 3]);
}

#[test]
fn only_what_is_new_and_due_calls() {
    let takers = Arc::new(Takers::default());
    let places = line_up(&takers, &[("jobs", "a", "")]);
    send_due(&takers, 1, Audience::Anyone, Due::In(1), false);
    send_due(&takers, 1, Audience::Anyone, Due::At(Timestamp::from_micros(6)), false);
    send_due(&takers, 1, Audience::Anyone, Due::Now, true);
    let (receipt, ready) = (LeaseReceipt { id: 1, delivery: 1, epoch: 1 }, Box::default());
    let extend = QueueOp::Settle { queue: "jobs", receipt, how: Settle::Extend { lease_ms: None } };
    notice(&takers, extend, QueueOutcome::Settled { until: None, ready });
    assert!(!is_called(&places[0]));
    send_due(&takers, 1, Audience::Anyone, Due::At(Timestamp::from_micros(5)), false);
    assert!(is_called(&places[0]));
}

#[test]
fn what_is_freed_calls_whom_it_is_for() {
    let takers = Arc::new(Takers::default());
    let places = line_up(&takers, &[("jobs", "a", ""), ("jobs", "b", ""), ("jobs.dead", "c", "")]);
    let freed = |queue: &str, receiver: Option<&str>| Freed {
        queue: queue.into(),
        id: 7,
        sender: "boss".into(),
        receiver: receiver.map(Into::into),
    };
    let receipt = LeaseReceipt { id: 7, delivery: 1, epoch: 1 };
    let nack = QueueOp::Settle { queue: "jobs", receipt, how: Settle::Nack { delay_ms: None } };
    let ready: Box<[Freed]> = [freed("jobs", Some("b")), freed("jobs.dead", None)].into();
    notice(&takers, nack, QueueOutcome::Settled { until: None, ready });
    assert_eq!(called(&places), [1, 2]);
}

#[test]
fn whole_queues_are_called_by_sweeps_and_by_their_end() {
    let takers = Arc::new(Takers::default());
    let places = line_up(&takers, &[("jobs", "a", "x"), ("jobs", "b", ""), ("other", "c", "")]);
    notice(&takers, QueueOp::Sweep, QueueOutcome::Swept { more: false, ready: ["other".into()].into() });
    assert_eq!(called(&places), [2]);
    let deleted = QueueOutcome::Deleted { messages: 0, ready: Box::default() };
    notice(&takers, QueueOp::Delete { queue: "jobs", force: false }, deleted);
    assert_eq!(called(&places), [0, 1, 2]);
}

#[test]
fn who_goes_away_passes_the_call_on() {
    let takers = Arc::new(Takers::default());
    let mut places = line_up(&takers, &[("jobs", "a", ""), ("jobs", "b", ""), ("jobs", "c", "")]);
    send(&takers, 1, Audience::Anyone);
    places.remove(0);
    assert_eq!(called(&places), [0]);
    // In the middle of a try, too.
    places[0].begin();
    places.remove(0);
    assert_eq!(called(&places), [0]);
    places.remove(0);
    assert!(takers.is_empty() && takers.state.lock().lines.is_empty());
}

#[test]
fn who_takes_another_message_passes_the_call_on() {
    let takers = Arc::new(Takers::default());
    let mut places = line_up(&takers, &[("jobs", "a", ""), ("jobs", "b", "")]);
    send(&takers, 1, Audience::Anyone);
    send(&takers, 2, Audience::One("a"));
    let first = places.remove(0);
    first.begin();
    first.took([2].into_iter());
    assert_eq!(called(&places), [0], "message 1 is still there");
    let second = places.remove(0);
    second.begin();
    places.push(takers.line_up(wants("jobs", "c", "")));
    second.took([1].into_iter());
    assert_eq!(called(&places), [0; 0]);
}

#[test]
fn who_finds_nothing_keeps_its_place() {
    let takers = Arc::new(Takers::default());
    let places = line_up(&takers, &[("jobs", "a", ""), ("jobs", "b", "")]);
    send(&takers, 1, Audience::Anyone);
    places[0].begin();
    places[0].found_nothing();
    assert_eq!(called(&places), [0; 0]);
    send(&takers, 2, Audience::Anyone);
    assert_eq!(called(&places), [0]);
}

#[test]
fn what_comes_during_a_try_calls_again() {
    let takers = Arc::new(Takers::default());
    let places = line_up(&takers, &[("jobs", "a", "")]);
    places[0].begin();
    send(&takers, 1, Audience::Anyone);
    places[0].found_nothing();
    assert!(is_called(&places[0]));
    places[0].begin();
    assert!(places[0].called().now_or_never().is_none());
}

/// What a client of the model does next.
#[derive(Debug, Clone)]
enum Step {
    /// Somebody comes and begins a try, which may be over at once.
    Arrive(usize, Option<usize>, bool),
    Send(Option<usize>, Option<usize>),
    Begin(usize),
    /// The take of a try that began happens, and is seen; newest first or not.
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
        (0..6_usize, any::<bool>()).prop_map(|(place, newest)| Step::Finish(place, newest)),
        (0..6_usize).prop_map(Step::Leave),
    ];
    proptest::collection::vec(step, 0..60)
}

struct Model {
    takers: Arc<Takers>,
    messages: Vec<Freed>,
    waiting: Vec<(Place, Wants, bool)>,
}

impl Model {
    fn position(&self, wants: &Wants, newest: bool) -> Option<usize> {
        let mut fitting = (0..self.messages.len()).filter(|index| {
            let message = &self.messages[*index];
            let receiver = wants.receiver.as_ref().map(ClientId::as_str);
            takes_from(wants, &message.sender)
                && message.receiver.as_deref().is_none_or(|for_whom| Some(for_whom) == receiver)
        });
        if newest { fitting.next_back() } else { fitting.next() }
    }

    fn finish(&mut self, index: usize, newest: bool) {
        let found = self.position(&self.waiting[index].1, newest);
        match found {
            Some(found) => {
                let (id, (place, ..)) = (self.messages.remove(found).id, self.waiting.remove(index));
                place.took([id].into_iter());
            }
            None => {
                self.waiting[index].0.found_nothing();
                self.waiting[index].2 = false;
            }
        }
    }
}

proptest! {
    /// Whatever happens in whatever order: once nobody is called and nobody tries, nobody waits for what is there.
    #[test]
    fn nobody_waits_beside_a_message(steps in steps()) {
        let names = ["ann", "bob", "cyd"];
        let mut model = Model { takers: Arc::default(), messages: Vec::new(), waiting: Vec::new() };
        let mut id = 0;
        for step in steps {
            match step {
                Step::Arrive(receiver, sender, is_done) => {
                    let wants = wants("jobs", names[receiver], sender.map_or("", |sender| names[sender]));
                    let place = model.takers.line_up(wants.clone());
                    place.begin();
                    model.waiting.push((place, wants, true));
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
                    notice(&model.takers, QueueOp::Sweep, settled);
                }
                Step::Begin(index) => {
                    if let Some((place, _, tries)) = model.waiting.get_mut(index)
                        && !*tries && is_called(place)
                    {
                        place.begin();
                        *tries = true;
                    }
                }
                Step::Finish(index, newest) => {
                    if model.waiting.get(index).is_some_and(|(_, _, tries)| *tries) {
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
        while let Some(index) = model.waiting.iter().position(|(place, _, tries)| *tries || is_called(place)) {
            // A try that goes on has begun: to begin again would forget what it was called for.
            if !model.waiting[index].2 {
                model.waiting[index].0.begin();
            }
            model.finish(index, index % 2 == 0);
        }
        for (_, wants, _) in &model.waiting {
            prop_assert_eq!(model.position(wants, false), None, "{:?} waits", wants);
        }
    }
}
