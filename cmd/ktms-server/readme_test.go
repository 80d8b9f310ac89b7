package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ai-process/ktms/server/status"
)

// variable is one line of the process configuration.
type variable struct{ name, fallback string }

// TestReadmeListsEveryVariable holds the table of README.md to the struct tags in config.go, defaults included.
func TestReadmeListsEveryVariable(t *testing.T) {
	t.Parallel()
	compareVariables(t, "README.md", variablesOfReadme(t), variablesOfConfig(t))
}

// TestEnvExampleListsEveryVariable holds env.example to the struct tags in config.go.
func TestEnvExampleListsEveryVariable(t *testing.T) {
	t.Parallel()
	compareVariables(t, "env.example", variablesOfExample(t), variablesOfConfig(t))
}

// unlisted are reasons that no caller of this release receives: one belongs to a feature to come, and who cancels a call
// does not wait for its answer.
var unlisted = []status.Reason{status.GuardrailViolation, status.Canceled}

// reasonRow is "| `reason`, `reason` | HTTP status | RPC code |".
var reasonRow = regexp.MustCompile("(?m)^\\| ((?:`[a-z_:]+`(?:, )?)+) \\| ([0-9]{3}) \\| ([A-Z_]+) \\|")

// TestReadmeListsEveryReason holds the table of errors in README.md to the error contract.
func TestReadmeListsEveryReason(t *testing.T) {
	t.Parallel()
	listed := map[status.Reason]bool{}
	for _, row := range reasonRow.FindAllStringSubmatch(readFile(t, "../../README.md"), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			reason := status.Reason(strings.Trim(name, "`"))
			listed[reason] = true
			refusal := status.New(reason, "no")
			if code, _ := status.OpenAI(refusal); strconv.Itoa(code) != row[2] {
				t.Errorf("README.md gives %s the HTTP status %s, the contract %d", reason, row[2], code)
			}
			if code := status.RPC(refusal).Code().String(); strings.ToUpper(code) != row[3] {
				t.Errorf("README.md gives %s the RPC code %s, the contract %s", reason, row[3], code)
			}
		}
	}
	for _, reason := range reasonsOfContract(t) {
		if listed[reason] == slices.Contains(unlisted, reason) {
			t.Errorf("README.md lists %s: %t, want %t", reason, listed[reason], !listed[reason])
		}
	}
}

// reasonsOfContract reads the constants of the type Reason out of the source.
func reasonsOfContract(t *testing.T) []status.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../server/status/status.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []status.Reason
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		if kind, named := spec.Type.(*ast.Ident); named && kind.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, status.Reason(text))
		}
		return false
	})
	if len(found) == 0 {
		t.Fatal("server/status has no reasons")
	}
	return found
}

func compareVariables(t *testing.T, file string, have, want []variable) {
	t.Helper()
	for _, v := range want {
		i := slices.IndexFunc(have, func(h variable) bool { return h.name == v.name })
		switch {
		case i < 0:
			t.Errorf("%s does not list %s", file, v.name)
		case have[i].fallback != v.fallback:
			t.Errorf("%s gives %s the default %q, config.go %q", file, v.name, have[i].fallback, v.fallback)
		}
	}
	seen := map[string]bool{}
	for _, h := range have {
		if !slices.ContainsFunc(want, func(v variable) bool { return v.name == h.name }) {
			t.Errorf("%s lists %s, which nothing reads", file, h.name)
		}
		if seen[h.name] {
			t.Errorf("%s lists %s twice", file, h.name)
		}
		seen[h.name] = true
	}
}

// variablesOfConfig reads the tags of the struct config out of the source.
func variablesOfConfig(t *testing.T) []variable {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []variable
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isType := node.(*ast.TypeSpec)
		if !isType || spec.Name.Name != "config" {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			if field.Tag == nil {
				continue
			}
			text, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			tag := reflect.StructTag(text)
			name, _, _ := strings.Cut(tag.Get("env"), ",")
			found = append(found, variable{name, tag.Get("envDefault")})
		}
		return false
	})
	if len(found) == 0 {
		t.Fatal("config.go has no struct config with env tags")
	}
	return found
}

// tableRow is "| `NAME` | `default` | meaning |"; a dash stands for no default.
var tableRow = regexp.MustCompile("(?m)^\\| `([A-Z][A-Z0-9_]+)` \\| (?:`([^`]*)`|–) \\|")

func variablesOfReadme(t *testing.T) []variable {
	t.Helper()
	var found []variable
	for _, row := range tableRow.FindAllStringSubmatch(readFile(t, "../../README.md"), -1) {
		found = append(found, variable{row[1], row[2]})
	}
	return found
}

// exampleLine is "NAME=value", commented out where the default is good enough.
var exampleLine = regexp.MustCompile(`(?m)^(?:# )?([A-Z][A-Z0-9_]+)=(.*)$`)

func variablesOfExample(t *testing.T) []variable {
	t.Helper()
	wanted := variablesOfConfig(t)
	var found []variable
	for _, line := range exampleLine.FindAllStringSubmatch(readFile(t, "../../env.example"), -1) {
		value := line[2]
		// Where there is no default, the example may show what a value looks like.
		if slices.Contains(wanted, variable{line[1], ""}) {
			value = ""
		}
		found = append(found, variable{line[1], value})
	}
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
