//! Places of a file where its mutants differ from the code as it is, found in its syntax tree.
//!
//! A place holds all mutants that can be chosen there while the program runs. What is computed
//! while it is compiled has no such choice: constants, `const fn`, lengths of arrays, patterns.
//! The operators of one chain, as of `a + b * c`, are one place: a mutant replaces the operator in
//! the text, so that the others bind as the new one makes them.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Signature};

use crate::mutants::tool::{Change, Mutant};

/// Kinds of text that is written at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An expression of which each mutant has an own text.
    Expression,
    /// The beginning of a function that a mutant leaves with an own value.
    Entry,
    /// The end of the pattern of an arm that its mutant does not take.
    Arm,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Site {
    pub form: Form,
    /// Bytes of the expression, or of nothing where text is only put in.
    pub range: Range<usize>,
    /// Bytes of the match that an arm belongs to; of any other place its own.
    pub within: Range<usize>,
    /// The mutants, by their places in the list, and the text of each.
    pub texts: Vec<(usize, String)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Places in the order of the source, an outer one before those inside of it.
    pub sites: Vec<Site>,
    /// Mutants that break the grammar of Rust.
    pub refused: Vec<usize>,
}

/// Finds the places of these mutants, each given with its place in a list. One that is not found
/// can be tried only by a build of its own.
pub fn find(source: &str, mutants: &[(usize, &Mutant)]) -> Result<Found> {
    let file = syn::parse_file(source).context("cannot parse it")?;
    let mut finder = Finder { source, wanted: BTreeMap::new(), found: Found::default() };
    for (index, mutant) in mutants {
        let Change { genre, start, end, .. } = &mutant.change;
        let of_place = finder.wanted.entry((genre.as_str(), *start, *end)).or_default();
        of_place.push((*index, mutant.change.replacement.as_str()));
    }
    finder.visit_file(&file);
    Ok(finder.found)
}

/// A genre of cargo-mutants, and the line and column where it begins and where it ends.
type Place<'t> = (&'t str, (usize, usize), (usize, usize));

struct Finder<'t> {
    source: &'t str,
    wanted: BTreeMap<Place<'t>, Vec<(usize, &'t str)>>,
    found: Found,
}

impl<'t> Finder<'t> {
    /// Takes out the mutants of this place.
    fn take(&mut self, genre: &'static str, first: Span, last: Span) -> Vec<(usize, &'t str)> {
        let (start, end) = (first.start(), last.end());
        let place = (genre, (start.line, start.column + 1), (end.line, end.column + 1));
        self.wanted.remove(&place).unwrap_or_default()
    }

    fn put(&mut self, form: Form, range: Range<usize>, texts: Vec<(usize, String)>) {
        let within = range.clone();
        self.put_within(within, form, range, texts);
    }

    fn put_within(
        &mut self,
        within: Range<usize>,
        form: Form,
        range: Range<usize>,
        texts: Vec<(usize, String)>,
    ) {
        if !texts.is_empty() {
            self.found.sites.push(Site { form, range, within, texts });
        }
    }

    /// The text of `whole` with `replacement` in the place of `part`.
    fn replaced(&self, whole: &Range<usize>, part: &Range<usize>, replacement: &str) -> String {
        let before = &self.source[whole.start..part.start];
        let after = &self.source[part.end..whole.end];
        // The blanks part operators that would be another one together, as `-` and `-`.
        format!("{before} {replacement} {after}")
    }

    fn function(&mut self, signature: &Signature, body: &syn::Block) {
        let (Some(first), Some(last)) = (body.stmts.first(), body.stmts.last()) else { return };
        let output = signature.output.span().byte_range();
        if self.source[output].contains("impl ") {
            // The value of a mutant has a type of its own, and one function can return only one.
            return;
        }
        let texts = self.take("FnValue", first.span(), last.span());
        let start = first.span().byte_range().start;
        let texts = texts.into_iter().map(|(index, text)| (index, text.to_owned())).collect();
        self.put(Form::Entry, start..start, texts);
    }

    fn chain(&mut self, top: &syn::ExprBinary) {
        let mut chain = Chain::default();
        chain.gather(top);
        if chain.has_let {
            return self.chain_of_lets(top);
        }
        let whole = top.span().byte_range();
        let mut texts = Vec::new();
        for operator in chain.operators {
            for (index, replacement) in self.take("BinaryOperator", operator, operator) {
                let text = self.replaced(&whole, &operator.byte_range(), replacement);
                if syn::parse_str::<Expr>(&text).is_ok() {
                    texts.push((index, text));
                } else {
                    self.found.refused.push(index);
                }
            }
        }
        self.put(Form::Expression, whole, texts);
        chain.operands.into_iter().for_each(|operand| self.visit_expr(operand));
    }

    /// The `&&` beside a `let` are replaced by `||`, which Rust does not allow there.
    fn chain_of_lets(&mut self, top: &syn::ExprBinary) {
        let operator = top.op.span();
        let refused = self.take("BinaryOperator", operator, operator);
        self.found.refused.extend(refused.into_iter().map(|(index, _)| index));
        for side in [&top.left, &top.right] {
            match &**side {
                Expr::Binary(inner) if matches!(inner.op, BinOp::And(_)) => {
                    self.chain_of_lets(inner);
                }
                other => self.visit_expr(other),
            }
        }
    }
}

/// Operators that stand in one row, without parentheses between them.
#[derive(Default)]
struct Chain<'ast> {
    operators: Vec<Span>,
    operands: Vec<&'ast Expr>,
    /// Whether one of the operands is the `let` of a condition, which stands nowhere else.
    has_let: bool,
}

impl<'ast> Chain<'ast> {
    fn gather(&mut self, expression: &'ast syn::ExprBinary) {
        self.side(&expression.left);
        self.operators.push(expression.op.span());
        self.side(&expression.right);
    }

    fn side(&mut self, side: &'ast Expr) {
        match side {
            Expr::Binary(inner) => self.gather(inner),
            other => {
                self.has_let |= matches!(other, Expr::Let(_));
                self.operands.push(other);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if item.sig.constness.is_none() {
            self.function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.sig.constness.is_none() {
            self.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        self.chain(expression);
    }

    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        let operator = expression.op.span();
        let whole = expression.span().byte_range();
        let mut texts = Vec::new();
        for (index, replacement) in self.take("UnaryOperator", operator, operator) {
            texts.push((index, self.replaced(&whole, &operator.byte_range(), replacement)));
        }
        self.put(Form::Expression, whole, texts);
        visit::visit_expr_unary(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        for arm in &expression.arms {
            let Some((_, guard)) = &arm.guard else {
                let deleted = self.take("MatchArm", arm.span(), arm.span());
                let end = arm.pat.span().byte_range().end;
                let deleted = deleted.into_iter().map(|(index, _)| (index, String::new()));
                let within = expression.span().byte_range();
                self.put_within(within, Form::Arm, end..end, deleted.collect());
                continue;
            };
            let texts = self.take("MatchArmGuard", guard.span(), guard.span());
            let texts = texts.into_iter().map(|(index, text)| (index, text.to_owned()));
            self.put(Form::Expression, guard.span().byte_range(), texts.collect());
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        let whole = expression.span().byte_range();
        let mut texts = Vec::new();
        for pair in expression.fields.pairs() {
            let first = pair.value().span();
            let last = pair.punct().map_or(first, |comma| comma.span());
            let part = first.byte_range().start..last.byte_range().end;
            for (index, replacement) in self.take("StructField", first, last) {
                texts.push((index, self.replaced(&whole, &part, replacement)));
            }
        }
        self.put(Form::Expression, whole, texts);
        visit::visit_expr_struct(self, expression);
    }

    fn visit_expr_repeat(&mut self, expression: &'ast syn::ExprRepeat) {
        self.visit_expr(&expression.expr);
    }

    // What is computed while the program is compiled.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
}
