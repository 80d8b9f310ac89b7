package pooltest

var choiceTests = []nodeTest{}
