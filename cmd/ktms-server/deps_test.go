package main

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ai-process/ktms"

// layer says what the packages under a path may import of this module, and why no more.
type layer struct {
	// path is a package, or with /... a folder with all packages below it. The closest row counts.
	path string
	// may lists packages, in the same spelling.
	may []string
	// because completes "it imports something else, but …".
	because string
}

// The only things that the layers of the server may import of what lies below them, and the arithmetic of choosing nodes.
var contracts = []string{"api/gen/...", "store", "pool", "pool/selection", "vendors", "vendors/sse", "vendors/openaiapi", "vendors/schema"}

const serverBecause = "a layer of the server knows only the layers below it, and of store, pool and vendors only what every implementation has in common"

var layers = []layer{
	{"api", nil, "the contract depends on nothing"},
	{"api/gen/...", []string{"api/gen/..."}, "generated code knows only generated code"},
	{"migrations", nil, "migrations are plain SQL"},

	{"cmd/ktms-server", []string{"api/gen/...", "server/...", "store/...", "pool/...", "vendors/..."}, "the server is no node agent"},
	{"cmd/ktms-node", []string{"api/gen/...", "nodeagent/..."}, "the agent runs on other people's machines and brings nothing of the server along"},
	{"cmd/ktms", []string{"api/gen/..."}, "the tool speaks to a server through its API alone"},
	{"nodeagent/...", []string{"api/gen/...", "nodeagent/..."}, "the agent speaks to a server through its API alone"},

	{"store", []string{"api/gen/..."}, "a contract does not know who fulfils or uses it"},
	{"store/seal", nil, "sealing takes bytes and returns bytes"},
	{"store/sqlstore", []string{"api/gen/...", "store"}, "what the databases have in common knows neither of them"},
	{"store/...", []string{"api/gen/...", "migrations", "store", "store/sqlstore"}, "implementations of the store do not know each other"},
	{"store/storetest", []string{"api/gen/...", "migrations", "store"}, "a suite that knew an implementation would bend to it"},

	{"pool", []string{"pool/selection"}, "a contract does not know who fulfils or uses it; what is chosen from is the arithmetic's"},
	{"pool/gcra", nil, "arithmetic depends on nothing"},
	{"pool/selection", nil, "the choice of a node is simulated and mirrored in a script, so it depends on nothing"},
	{"pool/selection/simulate", []string{"pool", "pool/memory", "pool/selection"}, "a simulation drives the pool that production uses with one gateway, under a clock of its own, and nothing beside it"},
	{"pool/...", []string{"pool", "pool/gcra", "pool/selection"}, "implementations of the pool do not know each other"},

	{"vendors", []string{"api/gen/..."}, "a contract does not know who fulfils or uses it"},
	{"vendors/sse", nil, "event streams know nothing of what they carry"},
	{"vendors/openaiapi", nil, "wire structs are shared with the server's own door, so they know neither side"},
	{"vendors/schema", []string{"api/gen/...", "vendors/openaiapi"}, "the rewriting of schemas is shared by the dialects, so it knows none of them"},
	{"vendors/guarded", nil, "who may be dialled does not depend on what is said there"},
	{"vendors/claude", []string{"api/gen/...", "vendors", "vendors/openaiapi", "vendors/schema"}, "what a model is does not depend on who serves it, so it knows no dialect"},
	{"vendors/...", []string{"api/gen/...", "vendors", "vendors/sse", "vendors/openaiapi", "vendors/schema", "vendors/transport"}, "dialects do not know each other"},
	{"vendors/anthropic", []string{"api/gen/...", "vendors", "vendors/sse", "vendors/openaiapi", "vendors/schema", "vendors/transport", "vendors/claude"}, "Claude's own dialect knows Claude, and no other dialect"},
	{"vendors/bedrock", []string{"api/gen/...", "vendors", "vendors/sse", "vendors/openaiapi", "vendors/schema", "vendors/transport", "vendors/claude"}, "it serves Claude among others, and knows no other dialect"},
	{"vendors/nodes", []string{"api/gen/...", "pool", "pool/selection", "vendors", "vendors/guarded", "vendors/openai", "vendors/transport"}, "the local pool is a vendor that speaks OpenAI's dialect, the one step aside"},

	{"server", append([]string{"server/..."}, contracts...), serverBecause},
	{"server/servertest/...", []string{"api/gen/...", "server/...", "store/...", "pool/...", "vendors/..."}, "the server's harness is no node agent"},

	{"scripts/installtest", []string{"api/gen/..."}, "the installer is tested from outside, as the shell and a gateway see it"},
}

// serverLayers stand from the bottom to the top: a package may import those of the rows above its own.
var serverLayers = [][]string{
	{"status", "caller", "usage", "guard", "cache"},
	{"access", "routing", "admit"},
	{"dispatch"},
	{"judge", "shadow", "batch"},
	{"gateway"},
	{"openai", "admin", "noderegistry"},
}

// testPackages serve tests alone.
var testPackages = []string{"store/storetest", "pool/pooltest", "vendors/vendortest", "server/servertest/..."}

// allLayers is the whole table.
func allLayers() []layer {
	all := slices.Clone(layers)
	below := slices.Clone(contracts)
	for _, row := range serverLayers {
		var here []string
		for _, name := range row {
			all = append(all, layer{"server/" + name, below, serverBecause})
			here = append(here, "server/"+name)
		}
		below = append(slices.Clone(below), here...)
	}
	return all
}

// TestImportDirections holds every package's direct imports to the table.
func TestImportDirections(t *testing.T) {
	t.Parallel()
	table := allLayers()
	for _, p := range goList(t, "./...") {
		path := relative(p.ImportPath)
		rule, found := ruleFor(table, path)
		if !found {
			t.Errorf("%s has no row in the table of layers: say there what it may import", path)
			continue
		}
		for _, imported := range p.Imports {
			to := relative(imported)
			if to != "" && !withinAny(rule.may, to) {
				t.Errorf("%s imports %s, but %s", path, to, rule.because)
			}
			if withinAny(testPackages, to) && !withinAny(testPackages, path) {
				t.Errorf("%s imports %s, but that serves tests alone", path, to)
			}
		}
	}
}

// TestBinariesHoldNoTests keeps what serves tests out of what is shipped.
func TestBinariesHoldNoTests(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "-deps", "./cmd/...") {
		if p.ImportPath == "testing" || withinAny(testPackages, relative(p.ImportPath)) {
			t.Errorf("a binary links %s; go list -deps ./cmd/... tells through whom", p.ImportPath)
		}
	}
}

// TestPackageComments wants every package to say once what it is.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "./...") {
		path := relative(p.ImportPath)
		if within("api/gen/...", path) {
			continue
		}
		comments := packageComments(t, p)
		if len(comments) != 1 {
			t.Errorf("%s has %d package comments, want 1: %q", path, len(comments), comments)
			continue
		}
		if !strings.HasPrefix(comments[0], "Package "+strings.TrimSuffix(p.Name, "_test")) && !strings.HasPrefix(comments[0], "Command ") {
			t.Errorf("%s has a package comment that does not begin with its name: %q", path, comments[0])
		}
	}
}

// packageComments reads the comments above the package clauses, of the tests only where there is nothing else.
func packageComments(t *testing.T, p listed) []string {
	t.Helper()
	files := slices.Concat(p.GoFiles, p.IgnoredGoFiles)
	if len(files) == 0 {
		files = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
	}
	var comments []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.TrimSpace(file.Doc.Text()); text != "" {
			comments = append(comments, text)
		}
	}
	return comments
}

// ruleFor finds the row of a package: its own, or the closest one that stands for all below a folder.
func ruleFor(table []layer, path string) (rule layer, found bool) {
	for _, l := range table {
		if l.path == path {
			return l, true
		}
		if within(l.path, path) && (!found || len(l.path) > len(rule.path)) {
			rule, found = l, true
		}
	}
	return rule, found
}

// within reports whether a path is the pattern, or below it.
func within(pattern, path string) bool {
	if folder, all := strings.CutSuffix(pattern, "/..."); all {
		return strings.HasPrefix(path, folder+"/") || path == folder
	}
	return path == pattern
}

func withinAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return within(pattern, path) })
}

// relative is an import path as seen from the module's root, or "" for what belongs to others.
func relative(importPath string) string {
	path, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	return path
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, Name     string
	GoFiles, IgnoredGoFiles   []string
	TestGoFiles, XTestGoFiles []string
	Imports                   []string
}

// goList asks the go command, from the module's root.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	fields := "-json=Dir,ImportPath,Name,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports"
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", fields}, args...)...)
	list.Dir = "../.."
	output, err := list.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("go list: %v\n%s", err, failed.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list found no package")
	}
	return packages
}
