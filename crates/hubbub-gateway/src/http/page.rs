//! Pages of lists: `next` of a page is the `after` of the next one.

pub(super) const LIMIT_DEFAULT: usize = 100;
pub(super) const LIMIT_MAX: usize = 1_000;

#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// The `after` of the next page, if there is one.
    pub(super) next: Option<String>,
}

impl<T> Page<T> {
    /// Cuts `items` at `limit`; one item more than that means that there is another page.
    pub(super) fn of(mut items: Vec<T>, limit: usize, cursor: impl FnOnce(&T) -> String) -> Self {
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(cursor);
        Self { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_item_more_than_asked_for_means_another_page() {
        let page = |count: u32, limit| {
            let page = Page::of((0..count).collect(), limit, |last: &u32| last.to_string());
            (page.items.len(), page.next)
        };
        assert_eq!(page(0, 2), (0, None));
        assert_eq!(page(2, 2), (2, None));
        assert_eq!(page(3, 2), (2, Some("1".into())));
    }
}
