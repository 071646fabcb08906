//! Options of `hubbub room`.

use clap::Subcommand;
use hubbub_core::{RoomId, UserId};

use super::values::time_or_off;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RoomAction {
    /// Create a room, or change the given settings. A user who creates it with a token is its first member; an administrator
    /// is none, and adds members with room add.
    Set {
        /// The room.
        #[arg(value_parser = RoomId::new)]
        room: RoomId,
        /// Display name; '' = none.
        #[arg(long)]
        title: Option<String>,
        /// Whether only members may read and write.
        #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
        members_only: Option<bool>,
        /// How long messages are kept, such as 12h or 30d; off = the server's default.
        #[arg(long, value_name = "TIME", value_parser = time_or_off)]
        retention: Option<String>,
    },
    /// Delete a room with its messages and members.
    Delete {
        /// The room.
        #[arg(value_parser = RoomId::new)]
        room: RoomId,
    },
    /// List a room's members and how far they read.
    Members {
        /// The room.
        #[arg(value_parser = RoomId::new)]
        room: RoomId,
    },
    /// Add a member.
    Add {
        /// The room.
        #[arg(value_parser = RoomId::new)]
        room: RoomId,
        /// The user.
        #[arg(value_parser = UserId::new)]
        user: UserId,
    },
    /// End a membership; the user gets nothing more of the room.
    Remove {
        /// The room.
        #[arg(value_parser = RoomId::new)]
        room: RoomId,
        /// The user.
        #[arg(value_parser = UserId::new)]
        user: UserId,
    },
}
