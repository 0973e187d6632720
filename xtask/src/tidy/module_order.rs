//! Rule that the modules of a crate have an order: a reader of one needs only those below it.

use super::{Offence, Project, Rule};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Attribute, Item, Path, UseTree, visit::Visit};

pub const RULE: Rule = Rule {
    name: "module order",
    promise: "a crate's folders import each other in one direction, and no import cycle of its \
              modules holds more than 3",
    offences,
};

const CYCLE_MODULES_MAX: usize = 3;

/// The name of a module in its parts: `storage::temporary` is `["storage", "temporary"]`; the
/// crate's root has no part.
type Module = Vec<String>;
/// The imports of each module.
type Imports<Name> = BTreeMap<Name, BTreeSet<Name>>;

fn offences(project: &Project) -> Vec<Offence> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &str>> = BTreeMap::new();
    for (file, text, _) in project.rust_files() {
        if let Some((source, module)) = place(&file.path) {
            crates.entry(source).or_default().insert(module, text);
        }
    }
    let mut offences = Vec::new();
    for (source, files) in crates {
        let path = format!("{source}/src");
        match imports(&files) {
            Ok(imports) => {
                let messages = disorders(&imports).into_iter().chain(large_cycles(&imports));
                offences.extend(messages.map(|message| Offence::in_file(&path, message)));
            }
            Err(error) => {
                offences.push(Offence::in_file(&path, format!("cannot be read: {error}")))
            }
        }
    }
    offences
}

/// The crate and the module of a source file. The root of a crate brings all of it together.
fn place(path: &str) -> Option<(&str, Module)> {
    let (source, file) = path.split_once("/src/")?;
    let is_ours = source.starts_with("crates/") && source.matches('/').count() == 1;
    let module: Module = file.strip_suffix(".rs")?.split('/').map(Into::into).collect();
    let module = match module.split_last()? {
        (last, above) if last == "mod" => above.to_vec(),
        (last, []) if ["lib", "main"].contains(&last.as_str()) => return None,
        _ => module,
    };
    (is_ours || source == "xtask").then_some((source, module))
}

fn imports(files: &BTreeMap<Module, &str>) -> syn::Result<Imports<Module>> {
    let mut imports = Imports::new();
    for (module, text) in files {
        let mut names = Names { module, found: Vec::new() };
        names.visit_file(&syn::parse_file(text)?);
        let imported = names.found.into_iter().filter_map(|name| {
            // The longest beginning that is a module: the rest is what it holds.
            (1..=name.len()).rev().find_map(|len| files.get_key_value(&name[..len]))
        });
        let imported = imported.map(|(imported, _)| imported).filter(|it| *it != module);
        imports.insert(module.clone(), imported.cloned().collect());
    }
    Ok(imports)
}

/// Names of this crate in a module's code, tests apart.
struct Names<'a> {
    module: &'a Module,
    found: Vec<Module>,
}

impl Names<'_> {
    fn add(&mut self, segments: &[String]) {
        let Some((first, rest)) = segments.split_first() else { return };
        let ups = segments.iter().take_while(|segment| *segment == "super").count();
        let name = match first.as_str() {
            "crate" => rest.to_vec(),
            "super" if ups <= self.module.len() => {
                [&self.module[..self.module.len() - ups], &segments[ups..]].concat()
            }
            "self" => [self.module, rest].concat(),
            // A module below this one, or another crate, whose name is none of ours then.
            _ => [self.module, segments].concat(),
        };
        self.found.push(name);
    }

    fn add_tree(&mut self, above: &[String], tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                self.add_tree(&[above, &[path.ident.to_string()]].concat(), &path.tree);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(above, tree)),
            UseTree::Name(name) if name.ident == "self" => self.add(above),
            UseTree::Name(name) => self.add(&[above, &[name.ident.to_string()]].concat()),
            UseTree::Rename(rename) => self.add(&[above, &[rename.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.add(above),
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(inner) if is_test(&inner.attrs) => {}
            Item::Use(import) if is_test(&import.attrs) => {}
            Item::Use(import) => self.add_tree(&[], &import.tree),
            item => syn::visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        // That a module names its own parts by a short way is no import.
        // A visibility is none either.
        if segments.len() > 1 && ["crate", "super", "self"].contains(&segments[0].as_str()) {
            self.add(&segments);
        }
        syn::visit::visit_path(self, path);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let of_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test")
    };
    attributes.iter().any(of_test)
}

/// Tells of folders, and files beside them, that import each other.
fn disorders(imports: &Imports<Module>) -> Vec<String> {
    let mut folders: Imports<String> = Imports::new();
    for (module, imported) in imports {
        let others = imported.iter().map(|it| it[0].clone()).filter(|it| *it != module[0]);
        folders.entry(module[0].clone()).or_default().extend(others);
    }
    let told = |cycle: Vec<String>| {
        let edges = imports.iter().flat_map(|(module, imported)| {
            let is_one = |it: &Module| it[0] != module[0] && cycle.contains(&it[0]);
            let imported = imported.iter().filter(move |it| is_one(it));
            imported.map(|it| format!("{} -> {}", module.join("::"), it.join("::")))
        });
        let of_cycle = |edge: &String| cycle.iter().any(|it| edge.starts_with(it.as_str()));
        let edges: Vec<String> = edges.filter(of_cycle).collect();
        format!("import each other: {}; by {}", cycle.join(", "), edges.join(", "))
    };
    cycles(&folders).into_iter().map(told).collect()
}

fn large_cycles(imports: &Imports<Module>) -> Vec<String> {
    let large = cycles(imports).into_iter().filter(|cycle| cycle.len() > CYCLE_MODULES_MAX);
    let told = |cycle: Vec<Module>| {
        let names: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
        let most = CYCLE_MODULES_MAX;
        format!(
            "{} modules import each other, at most {most} may: {}",
            names.len(),
            names.join(", ")
        )
    };
    large.map(told).collect()
}

/// Sets of two or more names each of which is reached from each other. There are few names, so all
/// that are reached from one are simply followed.
fn cycles<Name: Ord + Clone>(imports: &Imports<Name>) -> Vec<Vec<Name>> {
    let reached = |from: &Name| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(name) = next.pop() {
            for other in imports.get(&name).into_iter().flatten() {
                if seen.insert(other.clone()) {
                    next.push(other.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Name, BTreeSet<Name>> =
        imports.keys().map(|name| (name, reached(name))).collect();
    let mut cycles = BTreeSet::new();
    for (name, others) in &reached {
        let back = |other: &&Name| reached.get(*other).is_some_and(|it| it.contains(*name));
        let cycle: Vec<Name> = others.iter().filter(back).cloned().collect();
        if cycle.len() > 1 {
            cycles.insert(cycle);
        }
    }
    cycles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> =
            files.iter().map(|(path, _)| format!("crates/host/src/{path}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        offences(&Project::of(&files)).into_iter().map(|offence| offence.to_string()).collect()
    }

    #[test]
    fn folders_that_import_each_other_are_named_with_the_imports() {
        for back in ["use crate::a::b;", "use super::super::a::{b::c};", "fn f() { crate::a::g() }"]
        {
            let found = found(&[
                ("a/mod.rs", "pub mod b;"),
                ("a/b.rs", "use crate::{x::Y};"),
                ("x/mod.rs", "mod z;"),
                ("x/z.rs", back),
            ]);
            let [offence] = &found[..] else { panic!("{back}: {found:?}") };
            assert!(offence.contains("import each other: a, x; by a::b -> x"), "{offence}");
            assert!(offence.contains("x::z -> a"), "{offence}");
        }
    }

    #[test]
    fn one_direction_tests_comments_and_other_crates_are_no_offence() {
        let tests =
            "use crate::x::Y; #[cfg(test)] mod tests { use crate::c::D; fn f(_: crate::c::D) {} }";
        assert_eq!(found(&[("a.rs", tests), ("x.rs", ""), ("c.rs", "use crate::a::E;")]), [""; 0]);
        let other = "/// [`crate::a::E`]\nuse other::a::B; use std::x;";
        assert_eq!(found(&[("a.rs", "use crate::x::Y;"), ("x.rs", other)]), [""; 0]);
    }

    #[test]
    fn modules_of_one_folder_may_import_each_other_by_threes() {
        let parent = ("a/mod.rs", "mod b; mod c; mod d; use b::B;");
        let three = [parent, ("a/b.rs", "use super::c::C;"), ("a/c.rs", "use super::A;")];
        assert_eq!(found(&three), [""; 0]);
        let four = [parent, ("a/b.rs", "use super::c::C;"), ("a/c.rs", "use super::d::*;")];
        let found = found(&[&four[..], &[("a/d.rs", "use super::{self as up};")]].concat());
        assert!(found[0].contains("4 modules import each other"), "{found:?}");
    }
}
