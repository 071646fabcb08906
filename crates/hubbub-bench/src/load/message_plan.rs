//! What is sent: each message described in a few bytes, written out as JSON only when it goes to a socket.

use std::fmt::Write as _;

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::message::{MessageType, write_u64};

/// One message to send. Retries write it out again, with the same id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// Its number in the run; makes its `messageId`.
    pub(crate) index: u64,
    /// Microseconds after the start at which it should be sent; 0 in a closed loop.
    pub(crate) intended_us: u64,
    /// Microseconds after the start at which it was first sent; 0 until then.
    pub(crate) first_sent_us: u64,
    pub(crate) user: u32,
    pub(crate) room: u16,
    pub(crate) text: u16,
    pub(crate) kind: MessageType,
    pub(crate) failures: u8,
}

impl Job {
    /// When its time begins: with the intended send, in a closed loop with the first.
    pub(crate) fn begun_us(&self) -> u64 {
        if self.intended_us > 0 { self.intended_us } else { self.first_sent_us }
    }

    /// Microseconds from the intended send until the first; `None` in a closed loop.
    pub(crate) fn waited_us(&self) -> Option<u64> {
        (self.intended_us > 0).then(|| self.first_sent_us.saturating_sub(self.intended_us))
    }
}

/// Rooms, users and texts that messages are drawn from.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Start of each `messageId`; another one in each run, so that runs do not repeat each other's ids.
    run: String,
    /// Digits that the number of a message has in its id, at least.
    id_digits: usize,
    texts: Vec<String>,
    users: u32,
    /// A room has its own people, of whom some are in other rooms, too, and all that they send is text.
    has_residents: bool,
    /// What stands before the number of a room.
    pub(crate) room_prefix: String,
    /// Rooms that messages may go to, numbered from 1.
    pub(crate) rooms: u16,
    /// Each connection sends as one user.
    has_own_users: bool,
}

/// What stands before the number of a room, and of a key, where nothing else is said.
pub(crate) const BENCH_PREFIX: &str = "bench-";

/// How many different texts there are when their length is prescribed.
/// Many, so that equal ones stand far apart in what the server compresses; but long ones take no more memory than this.
const LONG_TEXTS: usize = 60_000;
const LONG_TEXTS_BYTES: usize = 256 << 20;

/// How many texts of this length there are: one at least.
fn long_texts(bytes: usize) -> usize {
    (LONG_TEXTS_BYTES / bytes.max(1)).clamp(1, LONG_TEXTS)
}

/// Who write in a room, and how far the next room's people are from them.
const ROOM_USERS: u64 = 50;
const ROOM_STEP: u64 = 10;

impl Shape {
    /// Messages of `users` users; texts are 50 phrases, or random words of exactly `text_bytes` bytes.
    pub(crate) fn new(run: u64, users: u32, text_bytes: Option<usize>, room_prefix: &str) -> Self {
        let run = run & 0xff_ffff_ffff;
        let texts = match text_bytes {
            None => PHRASES.lines().map(str::to_owned).collect(),
            Some(bytes) => {
                let random = SeededRandom::new(run);
                (0..long_texts(bytes)).map(|_| random_words(&random, bytes)).collect()
            }
        };
        let (run, room_prefix) = (format!("{run:010x}-"), room_prefix.to_owned());
        Self {
            run,
            id_digits: 0,
            texts,
            users,
            has_residents: false,
            room_prefix,
            rooms: 1,
            has_own_users: false,
        }
    }

    /// Texts of exactly `text_bytes` bytes by the people of each room, with ids as long as a UUID is.
    pub(crate) fn of_residents(run: u64, users: u32, text_bytes: usize) -> Self {
        let mark = format!("{:08x}-{:04x}-7000-8000-", run >> 32, run & 0xffff);
        let usual = Self::new(run, users.max(1), Some(text_bytes), BENCH_PREFIX);
        Self { run: mark, id_digits: 12, has_residents: true, ..usual }
    }

    /// Draws a message: 90 % TEXT, 5 % JOIN, 5 % LEAVE; TEXT alone where rooms have their own people.
    pub(crate) fn draw(&self, random: &SeededRandom, index: u64, room: u16) -> Job {
        let bits = random.next_u64();
        let kind = match bits % 20 {
            _ if self.has_residents => MessageType::Text,
            18 => MessageType::Join,
            19 => MessageType::Leave,
            _ => MessageType::Text,
        };
        let user = if self.has_residents {
            (u64::from(room) * ROOM_STEP + below(bits >> 32, ROOM_USERS)) % u64::from(self.users)
        } else {
            below(bits >> 32, u64::from(self.users))
        };
        let text = below((bits >> 5) & 0xffff_ffff, self.texts.len() as u64);
        Job {
            index,
            intended_us: 0,
            first_sent_us: 0,
            user: user as u32 + 1,
            room,
            text: text as u16,
            kind,
            failures: 0,
        }
    }

    /// The same with so many rooms, at least one.
    pub(crate) fn of_rooms(self, rooms: u16) -> Self {
        Self { rooms: rooms.max(1), ..self }
    }

    /// The same where each connection sends as one user.
    pub(crate) fn of_own_users(self) -> Self {
        Self { has_own_users: true, ..self }
    }

    /// Who sends over connection `who`, if that is one user.
    pub(crate) fn user_of(&self, who: usize) -> Option<u32> {
        let user = who as u64 % u64::from(self.users.max(1));
        self.has_own_users.then(|| user as u32 + 1)
    }

    pub(crate) fn room_name(&self, room: u16) -> String {
        format!("{}{room}", self.room_prefix)
    }

    pub(crate) fn write_room(&self, room: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(self.room_prefix.as_bytes());
        write_u64(u64::from(room), out);
    }

    pub(crate) fn write_id(&self, index: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.run.as_bytes());
        let digits = index.checked_ilog10().map_or(1, |log| log as usize + 1);
        out.extend(std::iter::repeat_n(b'0', self.id_digits.saturating_sub(digits)));
        write_u64(index, out);
    }

    pub(crate) fn index_of(&self, id: &[u8]) -> Option<u64> {
        let digits = id.strip_prefix(self.run.as_bytes())?;
        digits.iter().try_fold(0_u64, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u64::from(b - b'0')))
    }

    /// Appends the message as `/chat/{room}` takes it. `timestamp` is RFC 3339.
    pub(crate) fn write_chat(&self, job: &Job, timestamp: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"userId\":");
        write_u64(u64::from(job.user), out);
        out.extend_from_slice(b",\"username\":\"user");
        write_u64(u64::from(job.user), out);
        self.write_common(job, out);
        write_end(timestamp, out);
    }

    /// Appends the message as a line of `POST /v1/messages`, which is also what RabbitMQ takes.
    pub(crate) fn write_bulk(&self, job: &Job, timestamp: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"roomId\":\"");
        self.write_room(job.room, out);
        out.extend_from_slice(b"\",\"userId\":\"user");
        write_u64(u64::from(job.user), out);
        self.write_common(job, out);
        write_end(timestamp, out);
    }

    /// Appends the message as `POST /v1/rooms/{room}/messages` takes it.
    pub(crate) fn write_post(&self, job: &Job, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"userId\":\"");
        write_u64(u64::from(job.user), out);
        self.write_common(job, out);
        out.push(b'}');
    }

    fn write_common(&self, job: &Job, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\",\"messageType\":\"");
        out.extend_from_slice(job.kind.as_str().as_bytes());
        out.extend_from_slice(b"\",\"messageId\":\"");
        self.write_id(job.index, out);
        out.extend_from_slice(b"\",\"message\":\"");
        // The texts hold nothing that JSON would escape.
        out.extend_from_slice(self.text(job).as_bytes());
        out.push(b'"');
    }

    pub(crate) fn text(&self, job: &Job) -> &str {
        self.texts.get(usize::from(job.text)).map_or("", String::as_str)
    }
}

fn write_end(timestamp: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"timestamp\":\"");
    out.extend_from_slice(timestamp);
    out.extend_from_slice(b"\"}");
}

/// A number below `end` out of 32 random bits.
pub(crate) fn below(bits: u64, end: u64) -> u64 {
    ((bits & 0xffff_ffff) * end) >> 32
}

/// Random bits as a number from 0 to 1, which is left out.
pub(crate) fn share_of(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// What values consist of: the mark of the run, what the caller writes, and text up to a length.
pub(crate) struct Filler {
    pub(crate) mark: String,
    text: String,
    bytes: usize,
}

/// Texts begin at that many different places.
const FILLER_BYTES: usize = 1 << 16;

impl Filler {
    /// Values of `bytes`, or as many as what is written needs. Parts of a value end with `separator`.
    pub(crate) fn new(run: u64, separator: char, bytes: usize) -> Self {
        let text = random_words(&SeededRandom::new(run), FILLER_BYTES + bytes);
        Self { mark: format!("{:010x}{separator}", run & 0xff_ffff_ffff), text, bytes }
    }

    /// Appends text to the value that begins at `start`; `place` says which.
    pub(crate) fn fill(&self, start: usize, place: u64, out: &mut Vec<u8>) {
        let rest = self.bytes.saturating_sub(out.len() - start);
        let from = place as usize % FILLER_BYTES;
        out.extend_from_slice(self.text.as_bytes().get(from..from + rest).unwrap_or_default());
    }
}

/// Words of no meaning, so that a text is neither constant nor as incompressible as noise.
pub(crate) fn random_words(random: &SeededRandom, bytes: usize) -> String {
    const SYLLABLES: [&str; 32] = [
        "ka", "lo", "mi", "ne", "ru", "sa", "te", "vo", "wi", "zu", "bra", "cle", "dri", "fla", "gro", "hu",
        "jo", "ken", "lin", "mor", "nas", "pel", "quo", "ras", "sol", "tur", "und", "ver", "wol", "xi",
        "yen", "zor",
    ];
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        let mut bits = random.next_u64();
        for _ in 0..=bits % 3 {
            bits >>= 5;
            text.push_str(SYLLABLES.get((bits % 32) as usize).copied().unwrap_or_default());
        }
        if bits & 0x1000 == 0 {
            let _ = write!(text, " {}", bits % 1_000);
        }
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

/// What people say in a chat, one phrase a line; nothing in it needs an escape in JSON.
const PHRASES: &str = include_str!("phrases.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_json_of_the_promised_shape() {
        for text_bytes in [None, Some(120)] {
            let shape = Shape::new(77, 100_000, text_bytes, "room-");
            let random = SeededRandom::new(1);
            let mut kinds = [0_u32; 3];
            for index in 0..2_000 {
                let job = shape.draw(&random, index, 3);
                let mut out = Vec::new();
                shape.write_chat(&job, b"2026-01-31T12:00:00Z", &mut out);
                let chat: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
                assert!((1..=100_000).contains(&chat["userId"].as_u64().expect("integer")));
                let text = chat["message"].as_str().expect("text");
                assert!(
                    text_bytes.map_or((1..=500).contains(&text.len()), |bytes| text.len() == bytes),
                    "{text}"
                );
                assert_eq!(shape.index_of(chat["messageId"].as_str().expect("id").as_bytes()), Some(index));
                out.clear();
                shape.write_post(&job, &mut out);
                let post: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
                assert_eq!(post["message"], chat["message"]);
                kinds[job.kind as usize] += 1;
            }
            assert!(kinds[0] > 1_700 && kinds[1] > 60 && kinds[2] > 60, "{kinds:?}");
            assert_eq!(shape.room_name(3), "room-3");
        }
    }

    #[test]
    fn long_texts_are_fewer() {
        let counts = [0, 1, 120, 4_473, 10_000, 1_000_000, usize::MAX].map(long_texts);
        assert_eq!(counts, [60_000, 60_000, 60_000, 60_000, 26_843, 268, 1]);
        let shape = Shape::new(7, 10, Some(100_000), "");
        let random = SeededRandom::new(1);
        assert_eq!(shape.texts.len(), 2_684);
        assert!((0..5_000).all(|index| shape.text(&shape.draw(&random, index, 1)).len() == 100_000));
    }

    #[test]
    fn a_message_is_one_of_its_room_and_has_its_own_id() {
        let (shape, random) = (Shape::of_residents(7, 5, 40), SeededRandom::new(1));
        let mut ids = std::collections::HashSet::new();
        for index in 0..50 {
            let job = shape.draw(&random, index, index as u16 % 3 + 1);
            let mut line = Vec::new();
            shape.write_bulk(&job, b"2026-01-01T00:00:00Z", &mut line);
            let value: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
            assert_eq!(value["roomId"], shape.room_name(job.room));
            assert_eq!(value["messageType"], "TEXT");
            assert_eq!(value["message"].as_str().map(str::len), Some(40));
            let id = value["messageId"].as_str().expect("id");
            assert_eq!((id.len(), shape.index_of(id.as_bytes())), (36, Some(index)));
            ids.insert(id.to_owned());
        }
        assert_eq!(ids.len(), 50);
    }
}
