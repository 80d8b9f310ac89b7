package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxNodes bounds a schema, and what inlining makes of it: references that refer to each other double it at each
	// level. The largest schemas that vendors take have a few thousand.
	maxNodes = 20_000
	// maxHint bounds what is said of one keyword in a description.
	maxHint = 300
)

// Rules say what a vendor takes of JSON Schema.
type Rules struct {
	// Keywords are those that the vendor takes; nil is all of them. Any other is said in the description instead.
	Keywords []string
	// Takes decides on the value of a keyword that is in Keywords; nil takes every value. An object is shown as {}.
	Takes func(keyword string, value json.RawMessage) bool
	// Formats are the values of format that the vendor takes; nil is all.
	Formats []string
	// Rename says a keyword by another name: {"oneOf": "anyOf"}.
	Rename map[string]string
	// Inline replaces references by what they refer to. A schema that contains itself ends in one that takes anything,
	// and says so in its description.
	Inline bool
	// Close gives additionalProperties: false to objects that leave it open. Where that forbids what the schema allows,
	// Narrowed says so.
	Close bool
}

// Keywords that constrain nothing. silent ones leave without a trace, hints move into the description without counting
// as something that was lost.
var (
	silent = words("$schema", "$id", "$comment", "$anchor", "$vocabulary", "$dynamicAnchor")
	hints  = words("title", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "contentMediaType",
		"contentEncoding")
	// further are keywords that allow an object more members than it lists. Without them a closed object allows less.
	further = words("additionalProperties", "patternProperties", "unevaluatedProperties", "dependentSchemas", "if", "then",
		"else", "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef")
)

var (
	errReference = errors.New("has a reference that leads nowhere within it")
	errExplodes  = errors.New("becomes too large when its references are written out")
)

// Adapt rewrites the schema by rules. It returns the keywords that could not be kept as they are, each once, in order of
// appearance. An error means that the schema cannot be rewritten: a reference leads nowhere, or inlining explodes.
func (s *Schema) Adapt(r Rules) (moved []string, err error) {
	a := &adapter{rules: r, root: s.root, budget: maxNodes}
	if r.Inline {
		budget := maxNodes
		if a.root = s.root.clone(&budget); a.root == nil { // references are read from what the schema was
			return nil, errExplodes
		}
	}
	if err := a.schema(s.root, nil, false, 0); err != nil {
		return nil, err
	}
	s.narrowed = a.narrowed
	return a.moved, nil
}

// Narrowed reports whether Adapt closed an object that the schema had left open for more than its properties. Answers
// to the adapted schema would be held to less than was asked for, or could not be given at all: say such a schema in
// words instead.
func (s *Schema) Narrowed() bool { return s.narrowed }

type adapter struct {
	rules    Rules
	root     *node
	budget   int
	moved    []string
	narrowed bool
}

// schema rewrites one schema in place. within are the references that it is written out from; beside says that another
// schema, which lists properties, holds for the same value.
func (a *adapter) schema(n *node, within []string, beside bool, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	if n.kind != object {
		return nil
	}
	within, err := a.flatten(n, within, depth)
	if err != nil {
		return err
	}
	a.rename(n)
	var said []string
	open := false
	kept := n.members[:0]
	for _, m := range n.members {
		switch {
		case a.rules.Inline && (m.name == "$defs" || m.name == "definitions"):
		case a.keeps(m):
			kept = append(kept, m)
		case silent[m.name]:
		default:
			said = append(said, hint(m))
			if !hints[m.name] {
				a.lost(m.name)
			}
			open = open || further[m.name]
		}
	}
	n.members = kept
	if len(said) > 0 {
		n.describe(strings.Join(said, "; "))
	}
	if a.rules.Close && (n.get("properties") != nil || n.allows("object")) {
		a.close(n, open, beside)
	}
	beside = beside || n.get("properties") != nil
	for i := range n.members {
		m := &n.members[i]
		inPlace := schemaLists[m.name] && m.name != "prefixItems"
		for _, child := range m.children() {
			if err := a.schema(child, within, inPlace && beside, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// close forbids members that an object does not list. lost says that a keyword which allows more is gone, beside that
// another schema lists members of the same value.
func (a *adapter) close(n *node, lost, beside bool) {
	properties := n.get("properties")
	switch more := n.get("additionalProperties"); {
	case more == nil:
		n.set("additionalProperties", &node{kind: scalar, raw: []byte("false")})
		a.narrowed = a.narrowed || beside || properties == nil
	case string(more.raw) != "false":
		return // the vendor takes open objects
	}
	a.narrowed = a.narrowed || lost
	listed := properties.byName()
	for name := range n.get("required").texts() {
		if listed[name] == nil {
			a.narrowed = true // nobody could give it
		}
	}
}

func (a *adapter) lost(keyword string) {
	if !slices.Contains(a.moved, keyword) {
		a.moved = append(a.moved, keyword)
	}
}

func (a *adapter) keeps(m member) bool {
	switch {
	case m.name == "description":
		return true
	case a.rules.Keywords != nil && !slices.Contains(a.rules.Keywords, m.name):
		return false
	case a.rules.Takes != nil && !a.rules.Takes(m.name, m.value.shown()):
		return false
	case m.name == "format" && a.rules.Formats != nil:
		format, ok := m.value.string()
		return ok && slices.Contains(a.rules.Formats, format)
	}
	return true
}

// shown is a value for Takes.
func (n *node) shown() json.RawMessage {
	if n.kind == object {
		return json.RawMessage("{}")
	}
	return n.appendJSON(nil)
}

// rename says things in other keywords that mean the same.
func (a *adapter) rename(n *node) {
	for i := range n.members {
		m := &n.members[i]
		if to := a.rules.Rename[m.name]; to != "" && n.get(to) == nil {
			m.name = to
		}
		if m.name == "const" && !a.keeps(*m) && n.get("enum") == nil {
			m.name, m.value = "enum", &node{kind: array, items: []*node{m.value}}
		}
	}
}

// find follows a JSON pointer of the schema itself; nil if it leads nowhere, or elsewhere.
func (a *adapter) find(ref string) *node {
	pointer, own := strings.CutPrefix(ref, "#")
	if !own {
		return nil
	}
	n := a.root
	if pointer == "" {
		return n
	}
	path, own := strings.CutPrefix(pointer, "/")
	if !own {
		return nil
	}
	for step := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if n.kind == array {
			at, err := strconv.Atoi(step)
			if err != nil || at < 0 || at >= len(n.items) {
				return nil
			}
			n = n.items[at]
		} else if n = n.get(step); n == nil {
			return nil
		}
	}
	return n
}

// hint is a keyword in words, for the description.
func hint(m member) string {
	value := string(m.value.appendJSON(nil))
	if len(value) > maxHint {
		value = strings.ToValidUTF8(value[:maxHint], "") + "…"
	}
	return fmt.Sprintf("%s: %s", m.name, value)
}

// describe adds a sentence to the description.
func (n *node) describe(more string) {
	if before, ok := n.get("description").string(); ok && before != "" {
		more = before + "\n" + more
	}
	n.set("description", text(more))
}
