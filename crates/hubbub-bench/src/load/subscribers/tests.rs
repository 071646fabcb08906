use std::future::poll_fn;

use hubbub_ws::write;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::client::Target;
use crate::load::message_plan::Shape;
use crate::load::run::TIMES;
use crate::options::{Rules, arguments};

/// Its server sends these messages to whoever subscribes first, and then closes.
async fn cut_off_after(listener: TcpListener, seqs: &[u64]) {
    for connection in 0.. {
        let (mut wire, _) =
            crate::experiments::bare::upgrade(listener.accept().await.unwrap().0).await.unwrap();
        assert!(wire.stream().read_buf(&mut Vec::new()).await.unwrap() > 0, "it subscribes");
        write::write_text(&mut wire.out, b"{\"type\":\"subscribed\",\"roomId\":\"1\"}");
        if connection == 0 {
            for seq in seqs {
                let text =
                    format!("{{\"type\":\"message\",\"timestamp\":\"2026-01-01T00:00:00Z\",\"seq\":{seq}}}");
                write::write_text(&mut wire.out, text.as_bytes());
            }
            write::write_close(&mut wire.out, 1001, "");
        }
        poll_fn(|cx| wire.poll_flush(cx)).await.unwrap();
        if connection > 0 {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test]
async fn what_comes_again_and_a_lost_connection_are_noticed() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::parse(&server.local_addr().unwrap().to_string()).unwrap();
    tokio::spawn(cut_off_after(server, &[1, 2, 2, 3]));
    let rules: Rules = arguments("rules", &["--backoff", "1ms"]).unwrap();
    let run = Arc::new(Run::new(target, Shape::new(1, 10, None, ""), rules));
    let listeners = Listeners::gather(&run, 1, 1, 7).await.unwrap();
    while listeners.audience.lost.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let audience = Arc::clone(&listeners.audience);
    let delivery = listeners.finish().await;
    let mut accepted = [Tally::default(); 2];
    (0..6).for_each(|index| accepted[1].add(index));
    assert_eq!(audience.missing(&accepted, 1).collect::<Vec<_>>(), [2], "four of six came");
    assert_eq!((delivery.delivered, delivery.misordered, delivery.lost_connections), (4, 1, 1));
    assert_eq!(delivery.latency.count, 4, "by the times that messages carry");
}

#[tokio::test]
async fn what_comes_too_late_to_be_timed_is_counted() {
    let target = Target::parse("127.0.0.1:1").unwrap();
    let rules: Rules = arguments("rules", &[]).unwrap();
    let run = Arc::new(Run::new(target, Shape::new(1, 10, None, ""), rules).with_listeners());
    let audience = Arc::clone(&Listeners::gather(&run, 0, 1, 7).await.unwrap().audience);
    let mut subscriber = Subscriber::new(Arc::clone(&audience), 0, 1);
    let times = run.times.as_ref().unwrap();
    // The slot of the first one was given to a later one.
    for index in [1, 2, 1 + TIMES] {
        times.set(index, 0);
    }
    for (seq, index) in [(1, 1), (2, 2)] {
        subscriber.hear(&frame(&run, index, seq)).unwrap();
    }
    drop(subscriber);
    let timed = audience.latency.lock().len();
    assert_eq!((timed, audience.untimed.load(Ordering::Relaxed)), (1, 1));
}

/// A frame with that message of the run.
fn frame(run: &Run, index: u64, seq: u64) -> String {
    let mut id = Vec::new();
    run.shape.write_id(index, &mut id);
    let id = String::from_utf8(id).unwrap();
    format!("{{\"type\":\"message\",\"messageId\":\"{id}\",\"seq\":{seq}}}")
}

#[tokio::test]
async fn as_many_doubled_as_lost_are_noticed() {
    let target = Target::parse("127.0.0.1:1").unwrap();
    let rules: Rules = arguments("rules", &[]).unwrap();
    let run = Arc::new(Run::new(target, Shape::new(1, 10, None, ""), rules));
    let accepted = {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        [1, 3, 5].iter().for_each(|index| one.add(*index));
        other.add(2);
        [Tally::default(), one, other]
    };
    let faults = |heard: [&[u64]; 2]| {
        let audience = Arc::new(Audience::new(&run, 2, Duration::ZERO));
        for (who, indexes) in heard.into_iter().enumerate() {
            let mut subscriber = Subscriber::new(Arc::clone(&audience), who, who as u16 + 1);
            for (seq, index) in indexes.iter().enumerate() {
                subscriber.hear(&frame(&run, *index, seq as u64 + 1)).unwrap();
            }
            subscriber.pause();
        }
        let missing = audience.missing(&accepted, 2).sum::<u64>();
        (missing, audience.misordered.load(Ordering::Relaxed), audience.unlike(&accepted, 2))
    };
    assert_eq!(faults([&[3, 1, 5], &[2]]), (0, 0, 0));
    assert_eq!(faults([&[3, 3, 5], &[2]]), (0, 0, 1), "one is lost, another came twice");
    assert_eq!(faults([&[1, 3, 5], &[2, 2]]), (0, 0, 1), "one came twice");
    assert_eq!(faults([&[1, 3], &[2]]), (1, 0, 0), "one is lost, which is told already");
    run.counts.unconfirmed.store(1, Ordering::Relaxed);
    assert_eq!(faults([&[1, 3, 5], &[2, 7]]), (0, 0, 0), "what had no answer may be there");
    run.counts.unconfirmed.store(0, Ordering::Relaxed);
}
