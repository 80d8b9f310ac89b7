package vendors

import "strings"

// Ledger keeps account of the fields of one request while a dialect encodes it: what is dropped, and why it cannot be
// sent at all. The dialect's Table decides.
type Ledger struct {
	vendor  string
	table   Table
	dropped []string
	known   map[string]bool // the dropped, to find them among thousands
	failed  *Error
}

// maxDropped bounds what is listed: the list becomes a header, and names are as long and as many as a caller likes.
const (
	maxDropped     = 64
	maxDroppedName = 128
)

// NewLedger opens the account of one request.
func NewLedger(vendor string, table Table) *Ledger { return &Ledger{vendor: vendor, table: table} }

// Carries decides on a field that a request asked for, and reports whether to write it. A field that the table drops
// is noted, one that it refuses fails the request.
func (l *Ledger) Carries(f Field, asked bool) bool {
	if !asked {
		return false
	}
	switch l.table[f].How {
	case Native, Translated:
		return true
	case Refused:
		l.Refuse(f.Param(), "")
	default:
		l.Drop(f.Param())
	}
	return false
}

// Drop notes something that the dialect cannot carry, under the name by which a caller of the OpenAI API knows it.
func (l *Ledger) Drop(param string) {
	if len(param) > maxDroppedName {
		param = strings.ToValidUTF8(param[:maxDroppedName], "") + "..."
	}
	if len(l.dropped) > maxDropped || l.known[param] {
		return
	}
	if len(l.dropped) == maxDropped {
		param = "...and more"
	}
	if l.known == nil {
		l.known = map[string]bool{}
	}
	l.known[param] = true
	l.dropped = append(l.dropped, param)
}

// Refuse fails the request for this vendor: another may carry what this one cannot. why says more, or is empty.
func (l *Ledger) Refuse(param, why string) {
	text := param + " cannot be carried to this vendor"
	if why != "" {
		text += ": " + why
	}
	l.fail(Unsupported, param, text)
}

// Wrong fails the request for every vendor: it makes no sense as it is.
func (l *Ledger) Wrong(param, text string) { l.fail(Invalid, param, param+": "+text) }

// fail keeps the first failure.
func (l *Ledger) fail(kind Kind, param, text string) {
	if l.failed == nil {
		l.failed = &Error{Kind: kind, Vendor: l.vendor, Param: param, Message: text}
	}
}

// Failed returns why the request cannot be sent, nil if it can.
func (l *Ledger) Failed() *Error { return l.failed }

// Close ends the account: what was dropped, or why the request cannot be sent. A strict request must not lose anything.
func (l *Ledger) Close(strict bool) ([]string, *Error) {
	if strict && len(l.dropped) > 0 {
		l.Refuse(l.dropped[0], "")
	}
	if l.failed != nil {
		return nil, l.failed
	}
	return l.dropped, nil
}
