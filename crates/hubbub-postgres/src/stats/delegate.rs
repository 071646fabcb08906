//! Implements [`hubbub_core::StatsStore`] for types that delegate to another one.

/// Hands the methods of [`hubbub_core::StatsStore`] on: `delegate_stats!(Postgres, |postgres| postgres.counts)`.
macro_rules! delegate_stats {
    ($kind:ty, |$from:ident| $to:expr) => {
        $crate::stats::delegate_stats! { @ $kind, $from, $to,
            totals() -> Counted<Totals>;
            room_stats(room: hubbub_core::RoomId) -> Counted<Option<RoomStats>>;
            top_rooms(limit: usize) -> Counted<Vec<RoomStats>>;
            user_stats(user: hubbub_core::UserId) -> Counted<Option<UserStats>>;
            top_users(limit: usize) -> Counted<Vec<UserStats>>;
            top_pairs(limit: usize) -> Counted<Vec<PairStats>>;
            hours(query: HoursQuery) -> Counted<HoursPage>;
            active_users(query: ActiveUsersQuery) -> Counted<ActiveUsers>;
            participation(
                user: hubbub_core::UserId,
                after: Option<hubbub_core::RoomId>,
                limit: usize
            ) -> Counted<ParticipationPage>;
            user_history(user: hubbub_core::UserId, query: UserHistoryQuery) -> UserHistoryPage;
            audit() -> Counted<Audit>;
        }
    };
    (@ $kind:ty, $from:ident, $to:expr,
        $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        const _: () = {
            use hubbub_core::stats::*;
            impl StatsStore for $kind {
                $(fn $name(&self $(, $argument: $type)*) -> hubbub_core::store::Read<'_, $answer> {
                    let $from = self;
                    ($to).$name($($argument),*)
                })*
            }
        };
    };
}

pub(crate) use delegate_stats;
