//! How fast segments are written and read on this machine, and how much they take.
//!
//! `cargo run --release -p hubbub-store --example segment_bench [messages per segment] [texts: words|random]`

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // a benchmark asks the real clock

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::clock::SeededRandom;
use hubbub_core::id::write_uuid_v7;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Message, MessageRun, MessageType, RandomSource, Send, Timestamp};
use hubbub_store::embedded::Hidden;
use hubbub_store::embedded::IdFilter;
use hubbub_store::embedded::disk::{Disk, FileDisk};
use hubbub_store::embedded::segment::{
    BLOCK_CACHE_BYTES, BlockCache, Codec, IdHasher, SEGMENTS_DIR, Segment, SegmentWriter, merge,
};

const ROOMS: u64 = 20;
const SEGMENTS: u64 = 8;
const TEXT_BYTES: usize = 120;
const KEY: [u64; 2] = [1, 2];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let messages: u64 = arguments.next().map_or(330_000, |text| text.parse().unwrap());
    let texts = Texts { random: SeededRandom::new(1), words: arguments.next().as_deref() != Some("random") };
    let dir = tempfile::tempdir_in(".").unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()));
    disk.make_dir(SEGMENTS_DIR).unwrap();
    let cache = BlockCache::new(BLOCK_CACHE_BYTES);
    let open = |number| Segment::open(&*disk, number, Arc::clone(&cache)).unwrap();
    println!("{SEGMENTS} segments of {messages} messages of {TEXT_BYTES} bytes in {ROOMS} rooms");

    let mut json_bytes = 0;
    let mut writing = Duration::ZERO;
    for number in 0..SEGMENTS {
        let run = generate(&texts, messages, number);
        json_bytes += json_of(&run);
        let start = Instant::now();
        let mut writer =
            SegmentWriter::create(Arc::clone(&disk), number, Codec::Lz4, IdHasher::new(KEY)).unwrap();
        run.iter().for_each(|message| writer.push(&message).unwrap());
        writer.finish().unwrap();
        writing += start.elapsed();
    }
    let all = SEGMENTS * messages;
    let start = Instant::now();
    let segments: Vec<Segment> = (0..SEGMENTS).map(open).collect();
    println!("open: {:.2} ms each", start.elapsed().as_secs_f64() * 1e3 / SEGMENTS as f64);
    report("lz4", &segments, all, writing, json_bytes);

    let start = Instant::now();
    let mut writer = SegmentWriter::create(Arc::clone(&disk), 99, Codec::Zstd, IdHasher::new(KEY)).unwrap();
    merge(&segments, &mut writer, |_| true).unwrap();
    writer.finish().unwrap();
    let merged = [open(99)];
    report("zstd, merged", &merged, all, start.elapsed(), json_bytes);

    reads("lz4", &segments, &texts.random);
    reads("zstd, merged", &merged, &texts.random);
    ids(&segments, &texts.random);
}

fn report(name: &str, segments: &[Segment], messages: u64, time: Duration, json_bytes: u64) {
    let bytes: u64 = segments.iter().map(Segment::bytes).sum();
    println!(
        "{name}: {:.3} µs and {:.1} bytes per message, {:.2} of their JSON",
        time.as_secs_f64() * 1e6 / messages as f64,
        bytes as f64 / messages as f64,
        bytes as f64 / json_bytes as f64,
    );
}

fn reads(name: &str, segments: &[Segment], random: &SeededRandom) {
    for (what, limit, rounds) in [("last 50", 50, 4_000), ("1,000", 1_000, 2_000)] {
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let segment = &segments[usize::try_from(random.next_u64()).unwrap() % segments.len()];
                let room = format!("room-{:02}", random.next_u64() % ROOMS);
                let span = segment.span(&room).unwrap();
                let seq = span.first_seq + random.next_u64() % (span.last_seq - span.first_seq);
                let cursor = if limit == 50 { Cursor::Before(seq) } else { Cursor::After(seq) };
                let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max: usize::MAX };
                let start = Instant::now();
                let mut page = MessageRun::default();
                segment.read_room(&room, &query, &Hidden::default(), &mut page).unwrap();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
        println!("{name}: {what} from a random place: p50 {:.0} µs, p99 {:.0} µs", at(50), at(99));
    }
}

fn ids(segments: &[Segment], random: &SeededRandom) {
    let start = Instant::now();
    let mut filter = IdFilter::new();
    for segment in segments {
        segment.id_hashes(|hashes| hashes.iter().for_each(|hash| filter.insert(*hash))).unwrap();
    }
    let each = |time: Duration, count: u64| time.as_secs_f64() * 1e9 / count as f64;
    println!(
        "filter of {} ids refilled: {:.0} ns each, {} bytes",
        filter.len(),
        each(start.elapsed(), filter.len()),
        filter.bytes()
    );
    let asked = 1_000_000;
    let start = Instant::now();
    let maybe = (0..asked).filter(|_| filter.may_contain(random.next_u64())).count();
    println!(
        "filter asked for strangers: {:.0} ns each, {maybe} of {asked} false",
        each(start.elapsed(), asked)
    );
    let rounds = 100_000;
    let start = Instant::now();
    for _ in 0..rounds {
        segments[0].find_id(random.next_u64(), |_| true).unwrap();
    }
    println!("exact lookup of a stranger in one segment: {:.0} ns", each(start.elapsed(), rounds));
}

fn json_of(run: &MessageRun) -> u64 {
    let mut json = Vec::new();
    run.iter().for_each(|message| message.write_json(&mut json));
    json.len() as u64
}

struct Texts {
    random: SeededRandom,
    words: bool,
}

impl Texts {
    /// Words of a vocabulary of 4,096, or letters that hardly compress.
    fn write(&self, out: &mut String) {
        out.clear();
        while out.len() < TEXT_BYTES {
            let mut bits = self.random.next_u64();
            if self.words {
                // The same 12 bits always make the same word, of two to nine letters.
                bits = SeededRandom::new(bits & 0xFFF).next_u64();
                for _ in 0..2 + bits % 8 {
                    bits >>= 5;
                    out.push(char::from(b'a' + u8::try_from(bits % 26).unwrap()));
                }
                out.push(' ');
            } else {
                let _ = write!(out, "{bits:016x}");
            }
        }
        out.truncate(TEXT_BYTES);
    }
}

fn generate(texts: &Texts, messages: u64, number: u64) -> MessageRun {
    let mut run = MessageRun::default();
    let (mut text, mut id, mut user, mut username) =
        (String::new(), String::new(), String::new(), String::new());
    let per_room = messages / ROOMS;
    for place in 0..messages {
        let n = place % per_room;
        let received = 1_700_000_000_000_000 + i64::try_from((number * messages) + n * ROOMS).unwrap();
        texts.write(&mut text);
        id.clear();
        write_uuid_v7(Timestamp::from_micros(received - 2_000), &texts.random, &mut id);
        user.clear();
        username.clear();
        let _ = write!(user, "{}", 1 + texts.random.next_u64() % 100_000);
        let _ = write!(username, "user{user}");
        run.push(&Message {
            seq: number * per_room + n + 1,
            received_at: Timestamp::from_micros(received),
            sent: Send {
                room: &format!("room-{:02}", place / per_room),
                user: &user,
                id: &id,
                username: Some(&username),
                text: &text,
                kind: MessageType::Text,
                timestamp: Timestamp::from_micros((received - 2_000) / 1_000 * 1_000),
            },
        });
    }
    run
}
