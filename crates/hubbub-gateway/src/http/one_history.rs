//! Reads with the epoch that what was read belongs to.

use std::sync::Arc;

/// Reads of one request while one history of the store after another begins.
const READS_MAX: usize = 4;

/// What was read, and the epoch it belongs to. If the epoch changed meanwhile, what was read may be of either history, and is read
/// again. If it changes again and again, the epoch is the older one: whoever goes on there is told to begin anew, where the newer
/// one would hide that messages are missing.
pub(super) async fn read_of_one_history<T, E, R>(
    epoch: impl Fn() -> Arc<str>,
    mut read: impl FnMut() -> R,
) -> Result<(T, Arc<str>), E>
where
    R: Future<Output = Result<T, E>>,
{
    let mut reads = 0;
    loop {
        let before = epoch();
        let found = read().await?;
        reads += 1;
        if reads == READS_MAX || epoch() == before {
            return Ok((found, before));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reads in a history that ends during each of the first `changes` reads, and says what was read, in which epoch.
    async fn read_through(changes: usize) -> (usize, String) {
        let (history, reads) = (Cell::new(0), Cell::new(0));
        let epoch = || history.get().to_string().into();
        let read = || async {
            let found = history.get();
            reads.set(reads.get() + 1);
            history.set(found + usize::from(reads.get() <= changes));
            Ok::<_, ()>(found)
        };
        let (found, epoch) = read_of_one_history(epoch, read).await.unwrap();
        assert!(reads.get() <= READS_MAX);
        (found, epoch.to_string())
    }

    #[tokio::test]
    async fn nothing_is_named_by_an_epoch_that_began_after_it_was_read() {
        assert_eq!(read_through(0).await, (0, "0".into()));
        assert_eq!(read_through(1).await, (1, "1".into()));
        assert_eq!(read_through(usize::MAX).await, (READS_MAX - 1, (READS_MAX - 1).to_string()));
    }

    #[tokio::test]
    async fn a_failed_read_is_the_answer() {
        let read = || async { Err::<(), _>("failed") };
        assert_eq!(read_of_one_history(|| "a".into(), read).await, Err("failed"));
    }
}
