package caller

import "testing"

func TestMay(t *testing.T) {
	for _, test := range []struct {
		has    []string
		needed []string
		want   bool
	}{
		{nil, []string{ScopeGenerate}, false},
		{[]string{ScopeGenerate}, []string{ScopeGenerate}, true},
		{[]string{ScopeGenerate}, []string{ScopeAdmin}, false},
		{[]string{ScopeGenerate, ScopeAdminRead}, []string{ScopeAdminRead}, true},
		{[]string{ScopeAdmin}, []string{ScopeGenerate}, true},
		{[]string{ScopeAdmin}, []string{ScopeAdminRead}, true},
		{[]string{ScopeAdmin}, []string{ScopeNode}, false},
		{[]string{ScopeNode}, []string{ScopeNode}, true},
		{[]string{ScopeNode}, []string{ScopeGenerate}, false},
	} {
		if got := (&Caller{Scopes: test.has}).May(test.needed...); got != test.want {
			t.Errorf("%v where %v is needed: got %t", test.has, test.needed, got)
		}
	}
}
