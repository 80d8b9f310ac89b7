package schema

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/ai-process/ktms/vendors/openaiapi"
)

// maxDepth bounds the nesting of a schema. Vendors stop at 5 to 10 levels; the bound keeps hostile text cheap.
const maxDepth = 100

type kind int

const (
	scalar kind = iota
	object
	array
)

// node is a JSON value that keeps the order of members and the spelling of scalars.
type node struct {
	kind    kind
	raw     []byte // of a scalar
	members []member
	items   []*node
}

type member struct {
	name  string
	value *node
}

var (
	errDepth = errors.New("is nested too deeply")
	errLarge = errors.New("is too large")
)

// parse reads one JSON value.
func parse(text []byte) (*node, error) {
	if !json.Valid(text) {
		return nil, errors.New("is not JSON")
	}
	p := &parser{text: text, budget: maxNodes}
	return p.value(0)
}

// parser reads text that is known to be valid, in one pass.
type parser struct {
	text   []byte
	at     int
	budget int
}

func (p *parser) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	if p.budget--; p.budget < 0 {
		return nil, errLarge
	}
	switch p.next() {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	}
	return &node{kind: scalar, raw: p.scalar()}, nil
}

// next skips white space and the marks between values, and returns what comes.
func (p *parser) next() byte {
	for {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			p.at++
		default:
			return c
		}
	}
}

func (p *parser) object(depth int) (*node, error) {
	n := &node{kind: object}
	at := map[string]int{}
	for p.at++; p.next() != '}'; {
		var name string
		if err := json.Unmarshal(p.scalar(), &name); err != nil {
			return nil, err
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if i, twice := at[name]; twice { // the last of a name counts, as everywhere
			n.members[i].value = value
			continue
		}
		at[name] = len(n.members)
		n.members = append(n.members, member{name, value})
	}
	p.at++
	return n, nil
}

func (p *parser) array(depth int) (*node, error) {
	n := &node{kind: array}
	for p.at++; p.next() != ']'; {
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, value)
	}
	p.at++
	return n, nil
}

// scalar reads a string, a number or a word.
func (p *parser) scalar() []byte {
	start := p.at
	if p.text[p.at] != '"' {
		for p.at < len(p.text) && strings.IndexByte(" \t\r\n,:]}", p.text[p.at]) < 0 {
			p.at++
		}
		return p.text[start:p.at]
	}
	for p.at++; p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			p.at++
		}
	}
	p.at++
	return p.text[start:p.at]
}

func (n *node) appendJSON(dst []byte) []byte {
	switch n.kind {
	case object:
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = openaiapi.AppendString(dst, m.name)
			dst = append(dst, ':')
			dst = m.value.appendJSON(dst)
		}
		return append(dst, '}')
	case array:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	}
	return append(dst, n.raw...)
}

// get returns a member of an object, nil if there is none.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.members {
		if n.members[i].name == name {
			return n.members[i].value
		}
	}
	return nil
}

// set gives an object a member, in the place of one of the same name.
func (n *node) set(name string, value *node) {
	for i := range n.members {
		if n.members[i].name == name {
			n.members[i].value = value
			return
		}
	}
	n.members = append(n.members, member{name, value})
}

func text(s string) *node { return &node{kind: scalar, raw: openaiapi.AppendString(nil, s)} }

// string returns the text of a JSON string; ok is false for anything else.
func (n *node) string() (s string, ok bool) {
	if n == nil || n.kind != scalar || len(n.raw) == 0 || n.raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(n.raw, &s) == nil
}

// holds reports whether an array holds a string.
func (n *node) holds(want string) bool {
	if n == nil {
		return false
	}
	for _, item := range n.items {
		if s, ok := item.string(); ok && s == want {
			return true
		}
	}
	return false
}

// texts returns the strings of an array.
func (n *node) texts() map[string]bool {
	set := map[string]bool{}
	if n != nil {
		for _, item := range n.items {
			if s, ok := item.string(); ok {
				set[s] = true
			}
		}
	}
	return set
}

// byName returns the members of an object by their names.
func (n *node) byName() map[string]*node {
	if n == nil {
		return nil
	}
	all := make(map[string]*node, len(n.members))
	for _, m := range n.members {
		all[m.name] = m.value
	}
	return all
}

// allows reports whether the schema's type names a type.
func (n *node) allows(kind string) bool {
	types := n.get("type")
	s, ok := types.string()
	return ok && s == kind || types.holds(kind)
}

// clone copies a value, and counts its nodes against a budget.
func (n *node) clone(budget *int) *node {
	if *budget--; *budget < 0 {
		return nil
	}
	out := &node{kind: n.kind, raw: n.raw}
	for _, m := range n.members {
		value := m.value.clone(budget)
		if value == nil {
			return nil
		}
		out.members = append(out.members, member{m.name, value})
	}
	for _, item := range n.items {
		value := item.clone(budget)
		if value == nil {
			return nil
		}
		out.items = append(out.items, value)
	}
	return out
}
