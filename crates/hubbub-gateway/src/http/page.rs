//! Pages of lists: `next` of a page is the `after` of the next one.

pub(super) const LIMIT_DEFAULT: usize = 100;
pub(super) const LIMIT_MAX: usize = 1_000;

/// Cuts `items` at `limit`; one item more than that means that there is another page. `cursor` makes its `after`.
pub(super) fn cut<T>(
    mut items: Vec<T>,
    limit: usize,
    cursor: impl FnOnce(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(cursor);
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_item_more_than_asked_for_means_another_page() {
        let page = |count: u32, limit| {
            let (items, next) = cut((0..count).collect(), limit, |last: &u32| last.to_string());
            (items.len(), next)
        };
        assert_eq!(page(0, 2), (0, None));
        assert_eq!(page(2, 2), (2, None));
        assert_eq!(page(3, 2), (2, Some("1".into())));
    }
}
