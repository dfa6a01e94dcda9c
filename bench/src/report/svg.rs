//! Two kinds of charts as SVG: bars in groups, and lines over sizes. Colours are told by the page's, light or dark.

use std::fmt::Write as _;

use super::number;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 58.0;
const COLOURS: [&str; 6] = ["#3b82c4", "#d9822b", "#4f9d5d", "#b0568f", "#8a7a3c", "#7a6fc0"];

/// Bars: a group for each thing, in it one for each of the series.
pub(super) struct Bars<'c> {
    pub(super) title: &'c str,
    pub(super) unit: &'c str,
    pub(super) series: &'c [String],
    pub(super) groups: &'c [(String, Vec<Option<f64>>)],
    pub(super) is_log: bool,
}

/// Lines over a logarithmic axis.
pub(super) struct Lines<'c> {
    pub(super) title: &'c str,
    pub(super) x: &'c str,
    pub(super) unit: &'c str,
    pub(super) series: &'c [(String, Vec<(f64, f64)>)],
}

pub(super) fn bars(chart: &Bars<'_>) -> String {
    let values = chart.groups.iter().flat_map(|(_, values)| values).flatten().copied();
    let axis = if chart.is_log { Axis::log(values) } else { Axis::linear(values) };
    let mut svg = begin(chart.title, chart.unit, chart.series);
    axis.draw(&mut svg);
    let wide = (WIDTH - LEFT - RIGHT) / chart.groups.len().max(1) as f64;
    let bar = (wide * 0.8 / chart.series.len().max(1) as f64).min(60.0);
    for (place, (name, values)) in chart.groups.iter().enumerate() {
        let middle = LEFT + wide * (place as f64 + 0.5);
        let first = middle - bar * values.len() as f64 / 2.0;
        for (series, value) in values.iter().enumerate() {
            let x = first + bar * series as f64;
            let Some(value) = value else {
                text(&mut svg, x + bar / 2.0, HEIGHT - BOTTOM - 4.0, "middle", "–");
                continue;
            };
            let y = axis.y(*value);
            let (height, width) = ((HEIGHT - BOTTOM - y).max(1.0), (bar - 2.0).max(1.0));
            let colour = COLOURS[series % COLOURS.len()];
            let _ = writeln!(
                svg,
                r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
            );
            text(&mut svg, x + bar / 2.0, y - 4.0, "middle", &short(*value));
        }
        label(&mut svg, middle, wide, name);
    }
    end(svg)
}

pub(super) fn lines(chart: &Lines<'_>) -> String {
    let points = || chart.series.iter().flat_map(|(_, points)| points);
    let axis = Axis::linear(points().map(|(_, y)| *y));
    let names: Vec<String> = chart.series.iter().map(|(name, _)| name.clone()).collect();
    let mut svg = begin(chart.title, chart.unit, &names);
    axis.draw(&mut svg);
    let least = points().map(|(x, _)| x.log10()).fold(f64::INFINITY, f64::min);
    let most = points().map(|(x, _)| x.log10()).fold(f64::NEG_INFINITY, f64::max);
    let across = |x: f64| {
        let share = if most > least { (x.log10() - least) / (most - least) } else { 0.5 };
        LEFT + 30.0 + share * (WIDTH - LEFT - RIGHT - 60.0)
    };
    let mut sizes: Vec<f64> = points().map(|(x, _)| *x).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    for size in sizes {
        text(&mut svg, across(size), HEIGHT - BOTTOM + 18.0, "middle", &number(size));
    }
    text(&mut svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 40.0, "middle", chart.x);
    for (place, (_, points)) in chart.series.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), axis.y(*y))).collect();
        let _ =
            writeln!(svg, r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#, path.join(" "));
        for (x, y) in points {
            let (cx, cy) = (across(*x), axis.y(*y));
            let _ = writeln!(svg, r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3.5" fill="{colour}"/>"#);
            text(&mut svg, cx, cy - 8.0, "middle", &short(*y));
        }
    }
    end(svg)
}

/// From zero or from a power of ten, up.
struct Axis {
    least: f64,
    most: f64,
    is_log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn linear(values: impl Iterator<Item = f64>) -> Self {
        let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let rough = largest / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let count = (largest / step).ceil();
        let ticks = (0..=count as u32).map(|place| f64::from(place) * step).collect();
        Self { least: 0.0, most: step * count, is_log: false, ticks }
    }

    fn log(values: impl Iterator<Item = f64>) -> Self {
        let logs: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log10).collect();
        let least = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
        let (least, most) = if logs.is_empty() { (0.0, 1.0) } else { (least, most.max(least + 1.0)) };
        let ticks = (least as i32..=most as i32).map(|power| 10f64.powi(power)).collect();
        Self { least, most, is_log: true, ticks }
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let share = ((value - self.least) / (self.most - self.least)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }

    fn draw(&self, svg: &mut String) {
        for tick in &self.ticks {
            let (y, end) = (self.y(*tick), WIDTH - RIGHT);
            let _ = writeln!(svg, r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{end}" y2="{y:.1}"/>"#);
            text(svg, LEFT - 8.0, y + 4.0, "end", &number(*tick));
        }
    }
}

fn begin(title: &str, unit: &str, series: &[String]) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">
<style>
text {{ font: 12px sans-serif; fill: #333 }}
.title {{ font-size: 15px; font-weight: bold }}
.grid {{ stroke: #8886; stroke-width: 1 }}
.page {{ fill: #fff }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .page {{ fill: #161b22 }} }}
</style>
<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>
<text class="title" x="{LEFT}" y="20">{}</text>
"##,
        escaped(title)
    );
    text(&mut svg, LEFT - 8.0, TOP - 14.0, "end", unit);
    let mut x = LEFT;
    for (place, name) in series.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let _ = writeln!(svg, r#"<rect x="{x:.1}" y="30" width="11" height="11" fill="{colour}"/>"#);
        text(&mut svg, x + 16.0, 40.0, "start", name);
        x += 34.0 + 6.8 * name.chars().count() as f64;
    }
    svg
}

fn end(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(words));
}

/// The name of a group, in lines that fit.
fn label(svg: &mut String, middle: f64, wide: f64, name: &str) {
    let room = (wide / 7.0) as usize;
    let mut lines: Vec<String> = vec![String::new()];
    for word in name.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.chars().count() + word.chars().count() < room => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    for (place, line) in lines.iter().enumerate() {
        text(svg, middle, HEIGHT - BOTTOM + 16.0 + 14.0 * place as f64, "middle", line);
    }
}

/// A number that fits above a bar.
fn short(value: f64) -> String {
    match value.abs() {
        100_000.0.. => format!("{:.0}k", value / 1e3),
        10_000.0.. => format!("{:.1}k", value / 1e3),
        _ => number(value),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails unless every element is closed by its own name and no attribute holds what is no number where one belongs.
    fn assert_well_formed(svg: &str) {
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let mut open: Vec<&str> = Vec::new();
        for part in svg.split('<').skip(1) {
            let (tag, rest) = part.split_once('>').expect("a tag that ends");
            assert!(!rest.contains('>') && tag.matches('"').count() % 2 == 0, "{part}");
            let name = tag.split([' ', '\n']).next().unwrap();
            match name.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn charts_are_well_formed_whatever_was_measured() {
        let series = ["ours & <others>".to_owned(), "b \"c\"".to_owned()];
        for values in
            [vec![Some(10.0), Some(20_000.0)], vec![None, Some(0.0)], vec![None, None], vec![Some(0.02), None]]
        {
            for is_log in [false, true] {
                let groups = [("a & b < c in several words".to_owned(), values.clone())];
                assert_well_formed(&bars(&Bars {
                    title: "t & <",
                    unit: "µs",
                    series: &series,
                    groups: &groups,
                    is_log,
                }));
            }
        }
        for points in [vec![], vec![(10_000.0, 5.0)], vec![(10_000.0, 5.0), (1e6, 50.0)]] {
            let series = [("a<b".to_owned(), points), ("none".to_owned(), Vec::new())];
            assert_well_formed(&lines(&Lines { title: "t", x: "events", unit: "µs", series: &series }));
        }
    }

    #[test]
    fn a_taller_bar_is_a_larger_value() {
        for axis in [Axis::linear([1.0, 50.0].into_iter()), Axis::log([1.0, 50.0].into_iter())] {
            assert!(axis.y(50.0) < axis.y(5.0) && axis.y(5.0) < axis.y(2.0));
            assert!(axis.y(50.0) >= TOP && axis.y(1.0) <= HEIGHT - BOTTOM);
        }
    }
}
