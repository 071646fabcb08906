//! When and in which order: delays, times to live, groups, messages to everybody.

use hubbub_core::queue::{Audience, BROADCAST_TTL_MS, Due, QueueSend, QueueSettings, Settle, TakeFilter};
use hubbub_core::{QueueOp, QueueOutcome};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// Nothing comes before it is due.
pub async fn nothing_comes_early(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    for stage in Stage::ALL {
        let start = now(fixture);
        send(fixture, QueueSend { due: Due::In(5_000), ..message("q", "in five") }).await;
        send(fixture, QueueSend { due: Due::At(later(start, 3_000)), ..message("q", "at three") }).await;
        send(fixture, QueueSend { due: Due::At(later(start, -3_000)), ..message("q", "past") }).await;
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["past"], "{stage:?}");
        stage.reach(fixture).await;
        for (wait, expected) in
            [(2_999, vec![]), (1, vec!["at three"]), (1_999, vec![]), (1, vec!["in five"])]
        {
            advance_ms(fixture, wait);
            assert_eq!(
                texts(&peek(fixture, wanted("q", "bob"), 9).await),
                expected,
                "{stage:?} after {wait}"
            );
            let due = fixture.store().queue_due_in();
            assert!(
                expected.is_empty() == due.is_some_and(|due| !due.is_zero()) || due.is_some(),
                "{stage:?}: {due:?}"
            );
            get(fixture, wanted("q", "bob"), 9).await;
        }
        let told = info(fixture, "q").await;
        assert_eq!((told.ready, told.delayed, told.leased), (0, 0, 0), "{stage:?}");
    }
}

/// What becomes due keeps its position by age, and a sweep reports it.
pub async fn what_becomes_due_is_as_old_as_it_is(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    sweep(fixture).await;
    send(fixture, QueueSend { due: Due::In(1_000), ..message("q", "1") }).await;
    send(fixture, message("q", "2")).await;
    advance_ms(fixture, 999);
    assert!(sweep(fixture).await.is_empty());
    advance_ms(fixture, 1);
    assert_eq!(sweep(fixture).await.iter().map(|queue| &**queue).collect::<Vec<_>>(), ["q"]);
    assert!(sweep(fixture).await.is_empty(), "told once");
    assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["1", "2"]);
}

/// What outlived its time is not delivered, and is cleared away.
pub async fn what_outlived_its_time_is_gone(fixture: &mut impl Fixture) {
    let short = QueueSettings { ttl_ms: Some(4_000), ..QueueSettings::default() };
    make(fixture, "q", short).await;
    for (stage, round) in Stage::ALL.into_iter().zip(1..) {
        send(fixture, message("q", "four")).await;
        send(fixture, QueueSend { ttl_ms: Some(2_000), ..message("q", "two") }).await;
        send(fixture, QueueSend { ttl_ms: Some(9_000), due: Due::In(3_000), ..message("q", "nine") }).await;
        stage.reach(fixture).await;
        advance_ms(fixture, 1_999);
        assert_eq!(texts(&peek(fixture, wanted("q", "bob"), 9).await), ["four", "two"], "{stage:?}");
        advance_ms(fixture, 1);
        assert_eq!(texts(&peek(fixture, wanted("q", "bob"), 9).await), ["four"], "{stage:?}");
        assert_eq!(texts(&lease(fixture, wanted("q", "bob"), 9, 1_000).await), ["four"], "{stage:?}");
        advance_ms(fixture, 2_000);
        stage.reach(fixture).await;
        assert_eq!(texts(&peek(fixture, wanted("q", "bob"), 9).await), ["nine"], "{stage:?}");
        sweep(fixture).await;
        assert_eq!(waiting(fixture, "q").await.len(), 1, "{stage:?}");
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["nine"], "{stage:?}");
        let told = info(fixture, "q").await;
        assert_eq!(
            (told.messages(), told.bytes, told.dropped, told.done),
            (0, 0, round * 2, round),
            "{stage:?}"
        );
    }
}

/// Messages of one group come one after another; other groups go on meanwhile, even beside a poisoned one.
pub async fn a_group_keeps_its_order(fixture: &mut impl Fixture) {
    let limited = QueueSettings { deliveries_max: Some(2), ..QueueSettings::default() };
    make(fixture, "q", limited).await;
    let nack = Settle::Nack { delay_ms: Some(5_000) };
    for stage in Stage::ALL {
        for (group, text) in
            [(Some("a"), "a1"), (Some("b"), "b1"), (Some("a"), "a2"), (None, "-"), (Some("b"), "b2")]
        {
            send(fixture, QueueSend { group, ..message("q", text) }).await;
        }
        let held = lease(fixture, wanted("q", "bob"), 9, 60_000).await;
        assert_eq!(texts(&held), ["a1", "b1", "-"], "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(peek(fixture, wanted("q", "eve"), 9).await, [], "{stage:?}");
        done(fixture, settle(&held[1], Settle::Ack)).await;
        done(fixture, settle(&held[2], Settle::Ack)).await;
        stage.reach(fixture).await;
        assert_eq!(texts(&lease(fixture, wanted("q", "eve"), 9, 60_000).await), ["b2"], "{stage:?}");
        // One given back holds up its group while it waits, and goes first.
        done(fixture, settle(&held[0], nack)).await;
        stage.reach(fixture).await;
        assert_eq!(peek(fixture, wanted("q", "eve"), 9).await, [], "{stage:?}");
        advance_ms(fixture, 5_000);
        let again = lease_one(fixture, wanted("q", "eve"), 60_000).await;
        assert_eq!(again.text, "a1", "{stage:?}");
        // Given up, it lets the next one pass.
        done(fixture, settle(&again, nack)).await;
        assert_eq!(texts(&peek(fixture, wanted("q", "eve"), 9).await), ["a2"], "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(texts(&get(fixture, wanted("q", "eve"), 9).await), ["a2"], "{stage:?}");
        let left = waiting(fixture, "q").await;
        assert_eq!(left.len(), 1, "{stage:?}");
        done(fixture, QueueOp::Remove { queue: "q", id: left[0].delivery.id }).await;
    }
    for n in 0..5 {
        send(fixture, QueueSend { group: Some("c"), ..message("q", &n.to_string()) }).await;
    }
    assert_eq!(
        texts(&get(fixture, wanted("q", "bob"), 3).await),
        ["0", "1", "2"],
        "taken away one goes, so the next may"
    );
    done(fixture, QueueOp::Remove { queue: "q", id: waiting(fixture, "q").await[0].delivery.id }).await;
    assert_eq!(texts(&get(fixture, wanted("q", "bob"), 3).await), ["4"], "removed is gone too");
}

/// One that a redrive brings back before another that is on lease waits for the end of that lease: a group is one at a time.
pub async fn a_redriven_message_waits_for_its_group(fixture: &mut impl Fixture) {
    make(fixture, "q", QueueSettings { deliveries_max: Some(1), ..QueueSettings::default() }).await;
    let nack = Settle::Nack { delay_ms: None };
    for (round, stage) in Stage::ALL.into_iter().enumerate() {
        for text in ["1", "2", "3"] {
            send(fixture, QueueSend { group: Some("g"), ..message("q", text) }).await;
        }
        let died = lease_one(fixture, wanted("q", "bob"), 60_000).await;
        done(fixture, settle(&died, nack)).await;
        let held = lease_one(fixture, wanted("q", "bob"), 60_000).await;
        assert_eq!((&*died.text, &*held.text), ("1", "2"), "{stage:?}");
        done(fixture, QueueOp::Redrive { queue: "q.dead", id: None }).await;
        assert_eq!(peek(fixture, wanted("q", "eve"), 9).await, [], "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(peek(fixture, wanted("q", "eve"), 9).await, [], "{stage:?}");
        match round % 3 {
            0 => drop(done(fixture, settle(&held, Settle::Ack)).await),
            1 => drop(done(fixture, settle(&held, nack)).await),
            _ => advance_ms(fixture, 60_000),
        }
        assert_eq!(texts(&peek(fixture, wanted("q", "eve"), 1).await), ["1"], "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(texts(&get(fixture, wanted("q", "eve"), 1).await), ["1"], "{stage:?}");
        sweep(fixture).await;
        assert_eq!(texts(&get(fixture, wanted("q", "eve"), 9).await), ["3"], "{stage:?}");
        get(fixture, wanted("q.dead", "eve"), 9).await;
    }
    // One that is given back goes behind those that came back before it.
    for (text, max) in [("1", 1), ("2", 0), ("3", 0)] {
        make(fixture, "q", QueueSettings { deliveries_max: Some(max), ..QueueSettings::default() }).await;
        send(fixture, QueueSend { group: Some("g"), ..message("q", text) }).await;
        if max > 0 {
            let died = lease_one(fixture, wanted("q", "bob"), 60_000).await;
            done(fixture, settle(&died, nack)).await;
        }
    }
    let held = lease_one(fixture, wanted("q", "bob"), 60_000).await;
    done(fixture, QueueOp::Redrive { queue: "q.dead", id: None }).await;
    done(fixture, settle(&held, Settle::Nack { delay_ms: Some(0) })).await;
    assert_eq!(texts(&get(fixture, wanted("q", "eve"), 9).await), ["1", "2", "3"]);
}

/// A message to everybody comes once to each who was registered when it was sent, its sender excepted.
pub async fn a_message_to_everybody_comes_once_to_each(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &["ada", "bob", "carl", "dora"]).await;
    let to_all = |text| QueueSend { audience: Audience::All, ..message("q", text) };
    for stage in Stage::ALL {
        let sent = done(fixture, QueueOp::Send(to_all("news"))).await;
        assert!(
            matches!(sent, QueueOutcome::Sent { copies: 3, duplicate: false, .. }),
            "{stage:?}: {sent:?}"
        );
        register(fixture, &["late"]).await;
        stage.reach(fixture).await;
        assert_eq!(info(fixture, "q").await.ready, 3, "{stage:?}");
        for nobody in ["ada", "late"] {
            assert_eq!(get(fixture, wanted("q", nobody), 9).await, [], "{stage:?}: {nobody}");
        }
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["news"], "{stage:?}");
        assert_eq!(get(fixture, wanted("q", "bob"), 9).await, [], "{stage:?}");
        let held = lease_one(fixture, wanted("q", "carl"), 1_000).await;
        assert_eq!((held.text.as_str(), held.receiver.as_deref()), ("news", Some("carl")), "{stage:?}");
        stage.reach(fixture).await;
        done(fixture, settle(&held, Settle::Ack)).await;
        stage.reach(fixture).await;
        assert_eq!(texts(&peek(fixture, wanted("q", "dora"), 9).await), ["news"], "{stage:?}");
        // The last one to wait for goes away, and the message with it.
        done(fixture, QueueOp::Unregister { client: "dora" }).await;
        stage.reach(fixture).await;
        register(fixture, &["dora"]).await;
        assert_eq!(peek(fixture, wanted("q", "dora"), 9).await, [], "{stage:?}");
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
        done(fixture, QueueOp::Unregister { client: "late" }).await;
    }
}

/// What nobody fetches is gone after a week, where its sender set no other time.
pub async fn a_message_to_everybody_ends(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &["bob"]).await;
    send(fixture, QueueSend { audience: Audience::All, ..message("q", "news") }).await;
    send(fixture, QueueSend { audience: Audience::All, ttl_ms: Some(1_000), ..message("q", "short") }).await;
    let week = i64::try_from(BROADCAST_TTL_MS).unwrap();
    advance_ms(fixture, 1_000);
    assert_eq!(texts(&peek(fixture, wanted("q", "bob"), 9).await), ["news"]);
    advance_ms(fixture, week - 1_001);
    assert_eq!(peek(fixture, wanted("q", "bob"), 9).await.len(), 1);
    advance_ms(fixture, 1);
    assert_eq!(peek(fixture, wanted("q", "bob"), 9).await, []);
    sweep(fixture).await;
    assert_eq!(info(fixture, "q").await.messages(), 0);
    let nobody = QueueSend { sender: "bob", audience: Audience::All, ..message("q", "x") };
    done(fixture, QueueOp::Unregister { client: "ada" }).await;
    let sent = done(fixture, QueueOp::Send(nobody)).await;
    assert!(matches!(sent, QueueOutcome::Sent { copies: 0, .. }), "{sent:?}");
}

/// A peek shows what a take would give, and takes nothing.
pub async fn a_look_takes_nothing(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    register(fixture, &["bob"]).await;
    for n in 0..20 {
        let text = n.to_string();
        let group = (n % 5 == 0).then_some("g");
        send(fixture, QueueSend { group, ..message("q", &text) }).await;
        send(fixture, message_for("q", "bob", &text)).await;
    }
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        for newest_first in [false, true] {
            let wanted = TakeFilter { newest_first, ..wanted("q", "bob") };
            let seen = peek(fixture, wanted, 7).await;
            assert_eq!(seen.len(), 7, "{stage:?}");
            assert!(seen.iter().all(|one| one.deliveries == 0 && one.leased_until.is_none()), "{stage:?}");
            assert_eq!(peek(fixture, wanted, 7).await, seen, "{stage:?}");
        }
    }
    let seen = peek(fixture, wanted("q", "bob"), 9).await;
    assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), texts(&seen));
}
