//! A device that counts for itself what is unread in one room, by the rule in docs/api.md.

use serde_json::Value;

#[derive(Debug, Default)]
pub(crate) struct UnreadCounter {
    user: String,
    pub(crate) read: u64,
    pub(crate) unread: u64,
    /// Messages up to here are counted.
    counted: u64,
    /// Messages that came, and whether they are the user's own.
    heard: Vec<(u64, bool)>,
}

impl UnreadCounter {
    pub(crate) fn new(user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::default() }
    }

    /// The newest message that came.
    pub(crate) fn newest(&self) -> u64 {
        self.heard.last().map_or(0, |heard| heard.0)
    }

    pub(crate) fn take(&mut self, frame: &Value) {
        match frame["type"].as_str() {
            Some("message") => {
                let message = (frame["seq"].as_u64().unwrap(), frame["userId"] == self.user);
                self.heard.push(message);
                self.count(message);
            }
            Some("read") => {
                let [seq, unread, head] = ["seq", "unread", "head"].map(|name| frame[name].as_u64().unwrap());
                if seq >= self.read {
                    (self.read, self.unread, self.counted) = (seq, unread, head);
                    let heard = std::mem::take(&mut self.heard);
                    heard.iter().for_each(|message| self.count(*message));
                    self.heard = heard;
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, (seq, is_own): (u64, bool)) {
        if seq <= self.counted {
            return;
        }
        if is_own && self.read == self.counted {
            self.read = seq;
        } else if seq > self.read {
            self.unread += 1;
        }
        self.counted = seq;
    }
}
