//! Small charts as inline SVG; the page's style sheet gives them their colours.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Axes<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// Width of a character, about, and the distance of lines.
const CHARACTER: f64 = 6.0;
const LINE: f64 = 16.0;

/// One scale: from values to pixels.
struct Scale {
    max: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        self.share(value / self.max)
    }

    fn share(&self, share: f64) -> f64 {
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }
}

/// A figure that was measured at `x`, and where it lies with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) interval: Option<[f64; 2]>,
}

/// From how many times the smallest on the largest `x` is so far that the smaller ones would lie on each other.
const LOGARITHMIC_FROM: f64 = 20.0;

/// A line through what was measured, with its intervals as bars; below it stand the values that were measured.
pub(crate) fn measured(points: &[Measured], axes: Axes<'_>) -> String {
    let x = horizontal(points.iter().map(|point| point.x));
    let least = points.iter().map(|point| point.x).fold(f64::INFINITY, f64::min);
    let is_logarithmic = least > 0.0 && x.max / least >= LOGARITHMIC_FROM;
    let at = |value: f64| {
        if is_logarithmic { x.share((value / least).ln() / (x.max / least).ln()) } else { x.at(value) }
    };
    let name = if is_logarithmic { format!("{}, logarithmic", axes.x) } else { axes.x.to_owned() };
    let highs = points.iter().flat_map(|point| point.interval.map(|[_, high]| high));
    let y = vertical(points.iter().map(|point| point.y).chain(highs));
    let mut out = open(Axes { x: &name, y: axes.y }, 0);
    grid(&mut out, &y);
    let mut end = f64::NEG_INFINITY;
    for point in points {
        let (at, text) = (at(point.x), label(point.x));
        let half = CHARACTER * text.chars().count() as f64 / 2.0;
        if at - half > end {
            x_label(&mut out, at, &text);
            end = at + half + CHARACTER;
        }
        if let Some(bounds) = point.interval {
            let [low, high] = bounds.map(|bound| y.at(bound));
            let _ = write!(
                out,
                "<path class=\"interval\" d=\"M{at:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\"/>",
                at - 4.0,
                at - 4.0
            );
        }
    }
    path(&mut out, points.iter().map(|point| (at(point.x), y.at(point.y))), None);
    for point in points {
        let (x, y, title) = (at(point.x), y.at(point.y), label(point.y));
        let _ = write!(
            out,
            "<circle class=\"bar\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{title}</title></circle>"
        );
    }
    out.push_str("</svg>");
    out
}

/// A line through points whose values start at 0 on both axes.
pub(crate) fn line(points: &[(f64, f64)], axes: Axes<'_>) -> String {
    lines(&[("", points.to_vec())], axes)
}

/// Several such lines with one scale, each with a name and, if it is not alone, a colour of its own.
pub(crate) fn lines(lines: &[(&str, Vec<(f64, f64)>)], axes: Axes<'_>) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let x = horizontal(points().map(|point| point.0));
    let y = vertical(points().map(|point| point.1));
    let mut out = open(axes, 0);
    grid(&mut out, &y);
    for value in ticks(x.max) {
        x_label(&mut out, x.at(value), &label(value));
    }
    for (place, (name, points)) in lines.iter().enumerate() {
        let own = (lines.len() > 1).then(|| (colour(place, lines.len()), escape(name)));
        path(&mut out, points.iter().map(|point| (x.at(point.0), y.at(point.1))), own);
    }
    out.push_str("</svg>");
    out
}

/// Through these places, in pixels; with a colour and a name of its own where there are others.
fn path(out: &mut String, places: impl Iterator<Item = (f64, f64)>, own: Option<(String, String)>) {
    let mut path = String::new();
    for (index, (x, y)) in places.enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    let _ = match own {
        Some((colour, name)) => write!(
            out,
            "<path class=\"line\" style=\"stroke:{colour}\" d=\"{path}\"><title>{name}</title></path>"
        ),
        None => write!(out, "<path class=\"line\" d=\"{path}\"/>"),
    };
}

/// The names of several lines, each beside its colour; nothing for one line.
pub(crate) fn legend(names: &[&str]) -> String {
    if names.len() < 2 {
        return String::new();
    }
    let name = |(place, name): (usize, &&str)| {
        let colour = colour(place, names.len());
        format!("<span class=\"colour\" style=\"background:{colour}\"></span> {}", escape(name))
    };
    let names: Vec<String> = names.iter().enumerate().map(name).collect();
    format!("<p>{}</p>", names.join(", "))
}

/// Colours of as many lines, all around the wheel; readable on light and dark.
fn colour(place: usize, count: usize) -> String {
    format!("hsl({:.0} 65% 50%)", 360.0 * place as f64 / count.max(1) as f64)
}

/// Bars side by side with a label below each; where they are many, below some. Labels that are too long for that are numbers,
/// and stand below the chart.
pub(crate) fn bars(bars: &[(String, f64)], axes: Axes<'_>) -> String {
    let y = vertical(bars.iter().map(|bar| bar.1));
    let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    let each = bars.len().div_ceil(12).max(1);
    let longest = bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let is_numbered = CHARACTER * longest as f64 > step * each as f64;
    let mut out = open(axes, if is_numbered { bars.len() } else { 0 });
    grid(&mut out, &y);
    for (index, (name, value)) in bars.iter().enumerate() {
        let (left, top) = (LEFT + step * index as f64, y.at(*value));
        let (width, height) = (step * 0.85, HEIGHT - BOTTOM - top);
        let title = format!("{}: {}", escape(name), label(*value));
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{title}</title></rect>"
        );
        if is_numbered {
            let (number, y) = (index + 1, HEIGHT + LINE * index as f64 + 8.0);
            let name = escape(name);
            let _ = write!(out, "<text x=\"{LEFT}\" y=\"{y:.1}\">{number}: {name}</text>");
        }
        if index % each == 0 {
            let shown = if is_numbered { (index + 1).to_string() } else { name.clone() };
            x_label(&mut out, left + width / 2.0, &shown);
        }
    }
    out.push_str("</svg>");
    out
}

/// A chart as a file of its own, dark on light.
pub(crate) fn picture(svg: &str) -> String {
    const STYLE: &str = "text { font: 11px sans-serif; fill: #667085 } .grid { stroke: #e3e7ee } \
        .line { fill: none; stroke: #2563eb; stroke-width: 2 } .bar { fill: #2563eb } \
        .interval { fill: none; stroke: #667085 }";
    let rest = svg.strip_prefix("<svg ").unwrap_or(svg);
    let (attributes, body) = rest.split_once('>').unwrap_or(("", rest));
    let size = attributes.split_once("viewBox=\"0 0 ").and_then(|(_, rest)| rest.split_once('"'));
    let (width, height) = size.and_then(|(size, _)| size.split_once(' ')).unwrap_or_default();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" {attributes}>\
         <style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{body}\n"
    )
}

fn horizontal(values: impl Iterator<Item = f64>) -> Scale {
    Scale { max: positive(values.fold(0.0, f64::max)), from: LEFT, to: WIDTH - RIGHT }
}

fn vertical(values: impl Iterator<Item = f64>) -> Scale {
    let highest = positive(values.fold(0.0, f64::max));
    let top = ticks(highest).last().copied().unwrap_or(highest);
    let step = tick_step(highest);
    Scale { max: if top < highest { top + step } else { top }, from: HEIGHT - BOTTOM, to: TOP }
}

fn positive(value: f64) -> f64 {
    if value > 0.0 { value } else { 1.0 }
}

/// A step of 1, 2 or 5 times a power of ten that makes about five ticks.
fn tick_step(max: f64) -> f64 {
    let rough = max / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

fn ticks(max: f64) -> Vec<f64> {
    let step = tick_step(max);
    (0..=(max / step + 1e-9) as u32).map(|index| f64::from(index) * step).collect()
}

fn label(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", trimmed(v / 1e6)),
        v if v >= 1e4 => format!("{}k", trimmed(v / 1e3)),
        v => trimmed(v),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// With place for so many lines below it.
fn open(axes: Axes<'_>, lines: usize) -> String {
    let (x, y) = (escape(axes.x), escape(axes.y));
    let height = HEIGHT + LINE * lines as f64;
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{y} over {x}\">\
         <text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{x}</text>\
         <text class=\"axis\" x=\"14\" y=\"{}\" transform=\"rotate(-90 14 {})\" text-anchor=\"middle\">{y}</text>",
        WIDTH - RIGHT,
        HEIGHT - 4.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    )
}

fn grid(out: &mut String, y: &Scale) {
    for value in ticks(y.max) {
        let (at, right, text) = (y.at(value), WIDTH - RIGHT, label(value));
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
}

/// Centred below `at`, but not so far to the left that it lies on the lowest label of the other axis.
fn x_label(out: &mut String, at: f64, text: &str) {
    let half = CHARACTER * text.chars().count() as f64 / 2.0;
    let (at, y, text) = (at.max(LEFT - 3.0 + half), HEIGHT - BOTTOM + 15.0, escape(text));
    let _ = write!(out, "<text x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>");
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps() {
        assert_eq!(ticks(9.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(240_000.0).len(), 5);
        assert_eq!(
            [label(0.25), label(1_500.0), label(50_000.0), label(2_200_000.0)],
            ["0.25", "1500", "50k", "2.2M"]
        );
    }

    #[test]
    fn a_picture_stands_alone() {
        let picture = picture(&bars(&[("a".to_owned(), 1.0)], Axes { x: "x", y: "y" }));
        assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"), "{picture}");
        assert!(picture.contains("<style>") && picture.matches("<svg").count() == 1, "{picture}");
    }

    #[test]
    fn labels_that_do_not_fit_are_numbers_and_stand_below() {
        let axes = Axes { x: "x", y: "y" };
        let of = |name: &str| {
            let all: Vec<(String, f64)> = (0..5).map(|i| (format!("{name} {i}"), f64::from(i))).collect();
            picture(&bars(&all, axes))
        };
        let (short, long) = (of("clients"), of("pipeline.batch_max 5000, window"));
        assert!(short.contains(">clients 3</text>") && short.contains("height=\"260\""), "{short}");
        assert!(long.contains(">4: pipeline.batch_max 5000, window 3</text>"), "{long}");
        assert!(long.contains(">4</text>") && long.contains("height=\"340\""), "{long}");
        assert!(!long.contains("\"middle\">pipeline"), "{long}");
    }

    #[test]
    fn the_first_label_of_many_does_not_lie_on_the_other_axis() {
        let all: Vec<(String, f64)> = (0..60).map(|i| (format!("0.12{i}"), f64::from(i))).collect();
        let svg = bars(&all, Axes { x: "x", y: "y" });
        let (before, _) = svg.split_once("\">0.120</text>").unwrap();
        let (_, at) = before.rsplit_once("<text x=\"").unwrap();
        let at: f64 = at.split_once('"').unwrap().0.parse().unwrap();
        assert!(at - CHARACTER * 2.5 >= LEFT - 3.0, "{at}");
    }

    #[test]
    fn what_was_measured_far_apart_has_a_logarithmic_axis() {
        let chart = |numbers: &[f64]| {
            let point = |x: &f64| Measured { x: *x, y: 10.0 * x, interval: Some([9.0 * x, 12.0 * x]) };
            measured(&numbers.iter().map(point).collect::<Vec<_>>(), Axes { x: "clients", y: "per second" })
        };
        let places = |svg: &str| {
            let circles =
                svg.split("cx=\"").skip(1).filter_map(|rest| rest.split_once('"')?.0.parse::<f64>().ok());
            circles.collect::<Vec<_>>()
        };
        let even = chart(&[0.0, 5.0, 10.0]);
        assert_eq!(places(&even), [64.0, 384.0, 704.0], "{even}");
        let far = chart(&[1.0, 10.0, 100.0]);
        assert_eq!(places(&far), [64.0, 384.0, 704.0], "{far}");
        assert_eq!(far.matches("class=\"interval\"").count(), 3);
        assert!(far.contains(">10</text>") && far.contains("over clients"), "{far}");
        let near = chart(&[100.0, 100.5, 101.0]);
        assert!(
            near.contains(">100</text>") && !near.contains(">100.5</text>"),
            "labels on each other: {near}"
        );
    }

    #[test]
    fn lines_that_share_a_chart_have_colours_and_names() {
        let axes = Axes { x: "s", y: "%" };
        let both = lines(&[("a<b", vec![(0.0, 1.0), (1.0, 4.0)]), ("c", vec![(1.0, 2.0)])], axes);
        assert_eq!(both.matches("<path class=\"line\" style=\"stroke:hsl(").count(), 2, "{both}");
        assert!(both.contains("<title>a&lt;b</title>") && both.ends_with("</svg>"), "{both}");
        let legend = legend(&["a<b", "c"]);
        assert!(
            legend.contains("background:hsl(0 65% 50%)\"></span> a&lt;b,") && legend.contains("hsl(180 "),
            "{legend}"
        );
        assert_eq!(super::legend(&["alone"]), "");
        assert!(!line(&[(0.0, 1.0)], axes).contains("style"), "alone it has the page's colour");
    }

    #[test]
    fn a_chart_without_points_is_still_a_chart() {
        let axes = Axes { x: "s", y: "<n>" };
        for svg in [line(&[], axes), bars(&[], axes), measured(&[], axes), line(&[(0.0, 0.0)], axes)] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && svg.contains("&lt;n&gt;"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
