package schema

import (
	"bytes"
	"slices"
)

// flatten writes out a reference of a schema, and the schemas that all hold for the same value, where the vendor wants
// one schema instead: what each of them says stands side by side then.
func (a *adapter) flatten(n *node, within []string, depth int) ([]string, error) {
	within = slices.Clip(within)
	var err error
	if a.rules.Inline {
		if within, err = a.inline(n, within); err != nil {
			return nil, err
		}
	}
	all := n.get("allOf")
	if all == nil || all.kind != array || !a.rules.Close && a.keeps(member{"allOf", all}) {
		return within, nil
	}
	for _, part := range all.items {
		if part.kind != object {
			return within, nil // true and false: left to whoever takes them
		}
	}
	n.remove("allOf")
	for _, part := range all.items {
		if depth++; depth > maxDepth {
			return nil, errDepth
		}
		// A reference within has been written out already: the same shape again.
		inner, err := a.flatten(part, within, depth)
		if err != nil {
			return nil, err
		}
		within = inner
		a.merge(n, part)
	}
	return within, nil
}

// inline replaces a reference, and those that it leads to, by what they refer to.
func (a *adapter) inline(n *node, within []string) ([]string, error) {
	for {
		ref := n.get("$ref")
		if ref == nil {
			return within, nil
		}
		pointer, ok := ref.string()
		if !ok {
			return nil, errReference
		}
		n.remove("$ref")
		if slices.Contains(within, pointer) {
			a.lost("$ref")
			a.narrowed = true
			n.describe("the same shape again as " + pointer)
			return within, nil
		}
		target := a.find(pointer)
		if target == nil {
			return nil, errReference
		}
		if target = target.clone(&a.budget); target == nil {
			return nil, errExplodes
		}
		within = append(within, pointer)
		if target.kind == object {
			a.merge(n, target)
		}
	}
}

func (n *node) remove(name string) {
	n.members = slices.DeleteFunc(n.members, func(m member) bool { return m.name == name })
}

// merge adds to a schema what another says of the same value. What the two say differently, and what cannot be said at
// once, is lost and said in the description.
func (a *adapter) merge(n, other *node) {
	for _, m := range other.members {
		mine := n.get(m.name)
		switch {
		case mine == nil:
			n.members = append(n.members, m)
		case m.name == "description" || hints[m.name] || silent[m.name]:
			// The description beside a reference is about this place.
		case m.name == "$defs" || m.name == "definitions":
		case bytes.Equal(mine.appendJSON(nil), m.value.appendJSON(nil)):
		case m.name == "properties" && mine.kind == object && m.value.kind == object:
			have := mine.byName()
			for _, property := range m.value.members {
				if same := have[property.name]; same == nil {
					mine.members = append(mine.members, property)
				} else if same.kind == object && property.value.kind == object {
					a.merge(same, property.value)
				} else {
					a.conflict(n, m)
				}
			}
		case m.name == "required" && mine.kind == array && m.value.kind == array:
			have := mine.texts()
			for _, item := range m.value.items {
				if name, ok := item.string(); ok && !have[name] {
					have[name] = true
					mine.items = append(mine.items, item)
				}
			}
		case m.name == "enum" && mine.kind == array && m.value.kind == array:
			mine.items = slices.DeleteFunc(mine.items, func(item *node) bool { return !m.value.has(item) })
		case m.name == "type":
			if both := shared(mine, m.value); both != nil {
				n.set("type", both)
			} else {
				a.conflict(n, m)
			}
		case m.name == "allOf" && mine.kind == array && m.value.kind == array:
			mine.items = append(mine.items, m.value.items...)
		default:
			a.conflict(n, m)
		}
	}
}

func (a *adapter) conflict(n *node, m member) {
	a.lost(m.name)
	a.narrowed = a.narrowed || further[m.name]
	n.describe(hint(m))
}

// has reports whether an array holds a value, spelled the same.
func (n *node) has(value *node) bool {
	text := value.appendJSON(nil)
	return slices.ContainsFunc(n.items, func(item *node) bool { return bytes.Equal(item.appendJSON(nil), text) })
}

// shared is the types that two schemas both allow; nil if there is none.
func shared(a, b *node) *node {
	types := func(n *node) []*node {
		if n.kind == array {
			return n.items
		}
		return []*node{n}
	}
	out := &node{kind: array}
	list := &node{kind: array, items: types(b)}
	for _, t := range types(a) {
		if list.has(t) {
			out.items = append(out.items, t)
		}
	}
	switch len(out.items) {
	case 0:
		return nil
	case 1:
		return out.items[0]
	}
	return out
}
