//! Who is removed by another server gets nothing that was sent after that.

use super::*;

fn ada_is_removed(room: &mut Room) {
    (room.is_closed, room.has_lost_ada) = (true, true);
}

#[tokio::test]
async fn a_page_read_from_the_store_is_not_for_those_who_were_removed_before_it() {
    let (hub, store, ada) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    store.store(1);
    store.change(ada_is_removed);
    publish(&hub, "r", store.store(1));
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    assert_eq!(shown(&ada), ["ended r"]);
    hub.detach(attachment);
}

#[tokio::test]
async fn nothing_is_delivered_while_it_is_not_known_who_was_removed() {
    let (hub, store, ada) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    store.change(|room| room.is_mute = true);
    store.change(ada_is_removed);
    store.store(1);
    hub.poll_heads(&*store).await.unwrap_err();
    assert_eq!(shown(&ada), [""; 0]);
    store.room.lock().is_mute = false;
    hub.poll_heads(&*store).await.unwrap();
    assert_eq!(shown(&ada), ["ended r"]);
    hub.detach(attachment);
}

#[tokio::test]
async fn a_page_of_a_room_that_is_gone_ends_everybody() {
    let (hub, store, bob) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, None, &bob, 0);
    store.store(1);
    // Between the page and the comparison.
    store.change(|room| room.is_deleted = true);
    hub.compare(&*store, &RoomId::new("r").unwrap()).await.unwrap();
    assert_eq!(shown(&bob), ["ended r"]);
    hub.detach(attachment);
}

#[test]
fn a_removal_that_was_executed_before_ends_the_subscription_too() {
    let (hub, [ada, bob, eve]) = (hub(), [outbox(9), outbox(9), outbox(9)]);
    // The store says that ada is a member, and eve no more.
    let attachments = [("ada", &ada), ("bob", &bob), ("eve", &eve)].map(|(user, outbox)| {
        let attachment = hub.attach(RoomId::new("r").unwrap(), Some(UserId::new(user).unwrap()), outbox);
        assert!(hub.confirm(&attachment, outbox, user != "bob"));
        assert_eq!(hub.join(&attachment, outbox, 0), Joined::Live);
        attachment
    });
    for user in ["ada", "bob", "eve"] {
        let (op, _) = change(RoomChange::RemoveMember { room: "r", user });
        publish_all(&hub, [(op, Outcome::Changed { changed: false })]);
    }
    let ended = |outbox: &Arc<Outbox>| shown(outbox).into_iter().filter(|text| text == "ended r").count();
    assert_eq!([&ada, &bob, &eve].map(ended), [0, 0, 1], "guests stay, and who was added again");
    attachments.into_iter().zip([&ada, &bob, &eve]).for_each(|(attachment, _)| hub.detach(attachment));
}

/// Another server may have added ada again, who subscribed here anew, before this one publishes that it removed her.
#[tokio::test]
async fn a_removal_through_this_server_ends_nothing_newer() {
    let (hub, store, ada) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    for (is_over, expected) in [(false, "1"), (true, "ended r")] {
        if is_over {
            store.change(ada_is_removed);
        }
        let removal = change(RoomChange::RemoveMember { room: "r", user: "ada" });
        let [first, last] = [store.store(1), store.store(1)].map(|seqs| message("r", *seqs.start()));
        publish_all(&hub, [removal, first]);
        publish_all(&hub, [last]);
        assert_eq!(shown(&ada), [""; 0], "the store is asked first");
        hub.run_checks(&*store, &RoomId::new("r").unwrap()).await.unwrap();
        assert_eq!(shown(&ada)[0], expected);
    }
    assert_eq!(shown(&ada), [""; 0]);
    hub.detach(attachment);
}

/// Without a bus, too: this server takes over from one that died before it told of a removal.
#[tokio::test]
async fn what_was_removed_before_a_takeover_gets_nothing_that_is_committed_after_it() {
    let (hub, store, ada) = (shared(), OneRoom::new(0), outbox(99));
    let attachment = joined(&hub, Some("ada"), &ada, 0);
    hub.poll_heads(&*store).await.unwrap();
    store.change(ada_is_removed);
    hub.may_have_missed(|room| room.as_str() == "r");
    publish(&hub, "r", store.store(1));
    assert_eq!(shown(&ada), [""; 0]);
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    assert_eq!(shown(&ada), ["ended r"]);
    hub.detach(attachment);
}

#[cfg(feature = "kafka")]
mod checked;

#[cfg(feature = "kafka")]
mod bus {
    use super::*;
    use crate::hub::relay::NodeBus;

    /// A bus with one partition, which is read from a moment on.
    #[derive(Default)]
    struct Bus(AtomicBool);

    impl NodeBus for Bus {
        fn partitions(&self) -> u32 {
            1
        }

        fn partition_of(&self, _: &str) -> u32 {
            0
        }

        fn is_subscribed(&self, _: u32) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        fn record_bytes(&self) -> usize {
            8_000
        }

        fn records_per_tick(&self) -> usize {
            1
        }

        fn lacks_marks(&self) -> bool {
            false
        }

        fn send(&self, _: u32, _: String) {}
    }

    fn on_bus() -> (Hub, Arc<Bus>) {
        let (hub, bus) = (shared(), Arc::new(Bus::default()));
        hub.expect_bus();
        hub.enable_relay(bus.clone(), &SeededRandom::new(1));
        (hub, bus)
    }

    /// The bus is read from now on.
    fn begin(hub: &Hub, bus: &Bus) {
        hub.may_have_missed(|_| true);
        bus.0.store(true, Ordering::SeqCst);
    }

    fn publish_remote(hub: &Hub, seq: u64) {
        let (Op::Send(sent), Outcome::Stored(receipt)) = message("r", seq) else { panic!() };
        let message = Message { seq, received_at: receipt.received_at, sent };
        hub.publish_remote("r", |produce| produce(seq - 1, &message));
    }

    #[tokio::test]
    async fn what_was_removed_before_the_bus_was_read_gets_nothing_of_it() {
        let ((hub, bus), store, ada) = (on_bus(), OneRoom::new(0), outbox(99));
        let attachment = joined(&hub, Some("ada"), &ada, 0);
        hub.poll_heads(&*store).await.unwrap();
        store.change(ada_is_removed);
        begin(&hub, &bus);
        publish_remote(&hub, *store.store(1).start());
        assert_eq!(shown(&ada), [""; 0], "its predecessor is known, but not what changed");
        hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
        assert_eq!(shown(&ada), ["ended r"]);
        hub.detach(attachment);
    }

    #[tokio::test]
    async fn once_compared_the_bus_is_enough() {
        let ((hub, bus), store, [ada, bob]) = (on_bus(), OneRoom::new(0), [outbox(99), outbox(99)]);
        let attachment = joined(&hub, None, &ada, 0);
        hub.poll_heads(&*store).await.unwrap();
        publish_remote(&hub, *store.store(1).start());
        hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
        publish_remote(&hub, *store.store(1).start());
        assert_eq!(drain(&ada), [1], "compared before the bus was read");
        hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
        begin(&hub, &bus);
        hub.poll_heads(&*store).await.unwrap();
        let pages = hub.metrics.live_read_backs.get();
        publish_remote(&hub, *store.store(1).start());
        publish(&hub, "r", store.store(1));
        assert_eq!((drain(&ada), hub.metrics.live_read_backs.get()), (vec![2, 3, 4], pages));
        hub.detach(attachment);
        // A room that is followed while the bus is read.
        let attachment = joined(&hub, None, &bob, 4);
        publish_remote(&hub, *store.store(1).start());
        assert_eq!((drain(&bob), hub.metrics.live_read_backs.get()), (vec![5], pages));
        hub.detach(attachment);
    }

    #[tokio::test]
    async fn a_comparison_that_began_before_counts_for_nothing() {
        let ((hub, bus), store, ada) = (on_bus(), OneRoom::new(0), outbox(99));
        let attachment = joined(&hub, None, &ada, 0);
        begin(&hub, &bus);
        hub.poll_heads(&*store).await.unwrap();
        let room = RoomId::new("r").unwrap();
        let heads = store.heads(vec![room.clone()]).await.unwrap();
        let misses = hub.misses();
        hub.may_have_missed(|room| room.as_str() == "s");
        publish(&hub, "r", store.store(1));
        assert_eq!(drain(&ada), [1], "another room");
        hub.may_have_missed(|room| room.as_str() == "r");
        hub.set_compared(&room, heads.first(), misses);
        publish(&hub, "r", store.store(1));
        assert_eq!(drain(&ada), [0; 0]);
        hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
        publish(&hub, "r", store.store(1));
        assert_eq!(drain(&ada), [2, 3]);
        hub.detach(attachment);
    }

    #[tokio::test]
    async fn a_change_that_was_executed_before_may_have_been_told_to_nobody() {
        let ((hub, bus), store, ada) = (on_bus(), OneRoom::new(0), outbox(99));
        let attachment = joined(&hub, Some("ada"), &ada, 0);
        begin(&hub, &bus);
        hub.poll_heads(&*store).await.unwrap();
        store.change(ada_is_removed);
        let (op, _) = change(RoomChange::RemoveMember { room: "r", user: "ada" });
        let after = message("r", *store.store(1).start());
        publish_all(&hub, [(op, Outcome::Accepted), after]);
        assert_eq!(shown(&ada), [""; 0]);
        hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
        assert_eq!(shown(&ada), ["ended r"]);
        hub.detach(attachment);
    }
}
