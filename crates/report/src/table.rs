//! A table of words and numbers, as aligned text and as HTML.

use crate::{markup::escaped, printable::printable};

/// A table: rows below a heading. The first columns are words, the others numbers.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    /// Number of columns from the left that are words, aligned to the left.
    pub word_columns: usize,
    pub rows: Vec<Vec<String>>,
    /// Notes below the table, a sentence each.
    pub notes: Vec<String>,
}

impl Table {
    #[must_use]
    pub fn new(title: impl Into<String>, word_columns: usize, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { title: title.into(), columns, word_columns, ..Self::default() }
    }

    /// Adds a row of cells.
    ///
    /// # Panics
    /// If the row has more cells than the table has columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert!(cells.len() <= self.columns.len(), "a row fits its table");
        self.rows.push(cells);
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The table as aligned text for a terminal. A row that is shorter than the others ends in
    /// words, such as a reason, which may be as long as they like.
    #[must_use]
    pub fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        let line = |cells: &[String]| {
            let last = cells.len() - 1;
            let cut = cells.len() < self.columns.len();
            let cells = cells.iter().enumerate().map(|(at, cell)| {
                let (cell, width) = (printable(cell), widths[at]);
                if cut && at == last {
                    cell
                } else if at < self.word_columns {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
        };
        let mut lines = vec![printable(&self.title), line(&self.columns)];
        lines.extend(self.rows.iter().filter(|row| !row.is_empty()).map(|row| line(row)));
        lines.extend(self.notes.iter().map(|note| format!("  {}", printable(note))));
        lines.join("\n")
    }

    fn width(&self, column: usize) -> usize {
        let whole = self.rows.iter().filter(|row| {
            // The reason at the end of a short row takes what it needs.
            column + 1 < row.len() || row.len() == self.columns.len()
        });
        let cells = whole.filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([self.columns[column].chars().count()]).max().unwrap_or(0)
    }

    #[must_use]
    pub fn html(&self) -> String {
        let class = |at: usize| if at < self.word_columns { "w" } else { "n" };
        let cells = |row: &[String], name: &str| {
            let last = row.len().saturating_sub(1);
            let cut = row.len() < self.columns.len();
            let cell = |(at, text): (usize, &String)| {
                let text = escaped(text);
                if cut && at == last {
                    let rest = self.columns.len() - at;
                    return format!("<{name} class=\"w why\" colspan=\"{rest}\">{text}</{name}>");
                }
                format!("<{name} class=\"{}\">{text}</{name}>", class(at))
            };
            row.iter().enumerate().map(cell).collect::<String>()
        };
        let mut html = format!(
            "<div class=\"scroll\"><table>{}\n<thead><tr>{}</tr></thead>\n<tbody>\n",
            match &self.title[..] {
                "" => String::new(),
                title => format!("<caption>{}</caption>", escaped(title)),
            },
            cells(&self.columns, "th")
        );
        for row in &self.rows {
            html += &format!("<tr>{}</tr>\n", cells(row, "td"));
        }
        html += "</tbody></table></div>\n";
        for note in &self.notes {
            html += &format!("<p class=\"note\">{}</p>\n", escaped(note));
        }
        html
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("Pairs", 1, &["engine", "GB/s", "CPU"]);
        table.row(["read-write", "1.50", "0.8"].map(str::to_owned).to_vec());
        table.row(
            ["a<b", "needs a kernel that this host does not have"].map(str::to_owned).to_vec(),
        );
        table.note("Loopback.");
        table
    }

    #[test]
    fn words_stand_left_and_numbers_right_and_a_reason_takes_its_room() {
        let expected = "Pairs\n  engine      GB/s  CPU\n  read-write  1.50  0.8\n  a<b         \
                        needs a kernel that this host does not have\n  Loopback.";
        assert_eq!(table().text(), expected);
    }

    #[test]
    fn no_cell_can_be_taken_for_html() {
        let html = table().html();
        assert!(html.contains("<td class=\"w\">a&lt;b</td>"), "{html}");
        assert!(html.contains("colspan=\"2\""), "{html}");
    }
}
