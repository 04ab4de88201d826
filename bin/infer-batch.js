#!/usr/bin/env node
require("../dist/bundle/main.js");
