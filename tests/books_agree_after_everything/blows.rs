//! What befalls any server.

use std::time::Duration;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;

use crate::harness::Server;

/// How many there are.
pub(super) const BLOWS: u64 = 5;
/// How far the wall clock is set, in seconds.
const CLOCK_S: i64 = 7_200;

/// One of them.
pub(super) async fn strike(blow: u64, server: &mut Server, random: &SeededRandom) {
    let clock = (random.next_u64() % (2 * CLOCK_S as u64 + 1)).cast_signed() - CLOCK_S;
    match blow {
        0 => {
            server.kill();
            while random.next_u64().is_multiple_of(2) {
                server.kill_while_starting(Duration::from_micros(random.next_u64() % 100_000));
            }
            server.restart();
        }
        1 => server.set_clock(clock),
        2 => {
            server.kill();
            server.set_clock(clock);
            server.restart();
        }
        3 => {
            server.stop().await;
            server.restart();
        }
        _ => {
            server.pause();
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.resume();
            server.set_clock(0);
        }
    }
}
