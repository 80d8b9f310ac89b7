package openaiapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// The methods below read the value of the current member into a field. What the field cannot hold goes to extra under
// the member's name; the must forms fail instead, unless the decoder is lenient. null leaves the field unset.

// null consumes a null and reports whether there was one.
func (d *decoder) null() bool {
	if d.kind() != 'n' {
		return false
	}
	d.literal("null")
	return true
}

func (d *decoder) keep(extra *Members) {
	name := string(d.name())
	if value := d.raw(); d.build() {
		*extra = append(*extra, Member{name, value})
	}
}

// keepFrom is keep for a value that was read already, from start on.
func (d *decoder) keepFrom(start int, extra *Members) {
	if d.build() {
		*extra = append(*extra, Member{string(d.name()), d.data[start:d.pos:d.pos]})
	}
}

// wrong deals with a value of the wrong type for a must field.
func (d *decoder) wrong(want string, extra *Members) {
	if d.lenient {
		d.keep(extra)
		return
	}
	d.checkAndFail(want)
}

// checkAndFail prefers a syntax error to a complaint about the type.
func (d *decoder) checkAndFail(want string) {
	path := d.path()
	if d.skip(); d.err == nil {
		d.err = &TypeError{Path: path, Want: want}
	}
	d.pos = len(d.data)
}

// str reads a string. The empty string of a request goes to extra, since the field cannot tell it from an absent one;
// in answers the two mean the same.
func (d *decoder) str(field *string, extra *Members) { d.strLike(field, "", extra) }

// strLike is str for a member that mostly repeats a value seen before: chunks of a stream carry the same id and model
// over and over, and need no new string each time.
func (d *decoder) strLike(field *string, before string, extra *Members) {
	if d.kind() != '"' {
		if !d.null() {
			d.keep(extra)
		}
		return
	}
	start := d.pos
	q := d.quoted()
	if string(q) == before && bytes.IndexByte(q, '\\') < 0 {
		*field = before
	} else {
		*field = unquote(q)
	}
	if *field == "" && !d.lenient {
		d.keepFrom(start, extra)
	}
}

func (d *decoder) mustStr(field *string, extra *Members) {
	if d.kind() == '"' {
		*field = unquote(d.quoted())
	} else if !d.null() {
		d.wrong("a string", extra)
	}
}

func (d *decoder) boolean(field **bool, extra *Members) {
	switch d.kind() {
	case 't':
		d.literal("true")
		*field = new(true)
	case 'f':
		d.literal("false")
		*field = new(false)
	default:
		if !d.null() {
			d.keep(extra)
		}
	}
}

func (d *decoder) mustBool(field **bool, extra *Members) {
	if k := d.kind(); k == 't' || k == 'f' || k == 'n' {
		d.boolean(field, extra)
		return
	}
	d.wrong("true or false", extra)
}

func (d *decoder) float(field **float64, extra *Members) {
	if isNumber(d.kind()) {
		start := d.pos
		f, err := strconv.ParseFloat(string(d.number()), 64)
		if err != nil || math.IsInf(f, 0) {
			d.keepFrom(start, extra)
			return
		}
		*field = &f
		return
	}
	if !d.null() {
		d.keep(extra)
	}
}

// integer also takes 3.0 and 3e2, which some clients write for whole numbers.
func (d *decoder) integer(field **int64, extra *Members) {
	if isNumber(d.kind()) {
		start := d.pos
		i, ok := wholeNumber(d.number())
		if !ok {
			d.keepFrom(start, extra)
			return
		}
		*field = &i
		return
	}
	if !d.null() {
		d.keep(extra)
	}
}

func (d *decoder) mustInteger(field **int64, extra *Members) {
	if d.null() {
		return
	}
	start := d.pos
	if isNumber(d.kind()) {
		if i, ok := wholeNumber(d.number()); ok {
			*field = &i
			return
		}
		d.pos = start
	}
	d.wrong("a whole number", extra)
}

// count reads a whole number into a plain field, for figures where zero and absent are the same.
func (d *decoder) count(field *int64, extra *Members) {
	var p *int64
	if d.integer(&p, extra); p != nil {
		*field = *p
	}
}

func wholeNumber(text []byte) (int64, bool) {
	i, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	// Beyond 2^53 a float no longer names one integer.
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// value keeps any value as it was written; null is unset.
func (d *decoder) value(field *json.RawMessage) {
	if !d.null() {
		*field = d.raw()
	}
}

// list steps into an array; a value of another kind goes to extra, or fails when want is given. A true answer means
// that the caller reads the elements with element().
func (d *decoder) list(want string, extra *Members) bool {
	if d.kind() == '[' {
		d.enter()
		return d.err == nil
	}
	if d.null() {
		return false
	}
	if want == "" {
		d.keep(extra)
	} else {
		d.wrong(want, extra)
	}
	return false
}

// object is list for objects.
func (d *decoder) object(want string, extra *Members) bool {
	if d.kind() == '{' {
		d.enter()
		return d.err == nil
	}
	if d.null() {
		return false
	}
	if want == "" {
		d.keep(extra)
	} else {
		d.wrong(want, extra)
	}
	return false
}

// elementObject steps into an element that has to be an object. Where it is not, a request fails and an answer goes on
// without the element.
func (d *decoder) elementObject() bool {
	if d.kind() == '{' {
		d.enter()
		return d.build()
	}
	if d.lenient {
		d.skip()
	} else {
		d.checkAndFail("an object")
	}
	return false
}

// root steps into the one object that a text is.
func (d *decoder) root() bool {
	if d.kind() != '{' {
		d.checkAndFail("an object")
		return false
	}
	d.enter()
	return true
}
