;; MurmurHash3_x86_128 (public domain, A. Appleby) of rows of as many words each, for hash-loops.ts: four rows at a time,
;; a row in each element of a vector. Addresses are bytes. Products with 5 are written as sums, which take less time.
(module
  (memory (export "memory") 3) ;; pages of 64 KiB: 128 KiB of rows, and 64 KiB of hashes

  ;; Hashes `rows` rows, a multiple of four, of `words` words each, one behind the other from `at` on. The hashes, of four
  ;; words each, go to `to`. `a` to `d`: the seed.
  (func (export "hashRows")
    (param $at i32) (param $words i32) (param $rows i32) (param $to i32)
    (param $a i32) (param $b i32) (param $c i32) (param $d i32)
    (local $stride i32) (local $end i32) (local $whole i32) (local $last i32)
    (local $p i32) (local $q i32) (local $r i32) (local $s i32)
    (local $h1 v128) (local $h2 v128) (local $h3 v128) (local $h4 v128)
    (local $k1 v128) (local $k2 v128) (local $k3 v128) (local $k4 v128)
    (local $pqLow v128) (local $pqHigh v128) (local $rsLow v128) (local $rsHigh v128)
    (local $c1 v128) (local $c2 v128) (local $c3 v128) (local $c4 v128) (local $bytes v128)
    (local.set $c1 (i32x4.splat (i32.const 0x239b961b)))
    (local.set $c2 (i32x4.splat (i32.const 0xab0e9789)))
    (local.set $c3 (i32x4.splat (i32.const 0x38b34ae5)))
    (local.set $c4 (i32x4.splat (i32.const 0xa1e38b93)))
    (local.set $stride (i32.shl (local.get $words) (i32.const 2)))
    (local.set $bytes (i32x4.splat (local.get $stride)))
    (local.set $whole (i32.shl (i32.and (local.get $words) (i32.const -4)) (i32.const 2)))
    (local.set $end (i32.add (local.get $to) (i32.shl (local.get $rows) (i32.const 4))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $to) (local.get $end)))
        (local.set $p (local.get $at))
        (local.set $q (i32.add (local.get $p) (local.get $stride)))
        (local.set $r (i32.add (local.get $q) (local.get $stride)))
        (local.set $s (i32.add (local.get $r) (local.get $stride)))
        (local.set $at (i32.add (local.get $s) (local.get $stride)))
        (local.set $last (i32.add (local.get $p) (local.get $whole)))
        (local.set $h1 (i32x4.splat (local.get $a)))
        (local.set $h2 (i32x4.splat (local.get $b)))
        (local.set $h3 (i32x4.splat (local.get $c)))
        (local.set $h4 (i32x4.splat (local.get $d)))
        (block $blocks
          (loop $block
            (br_if $blocks (i32.eq (local.get $p) (local.get $last)))
            ;; Four words of each row become a vector for each of these words.
            (local.set $k1 (v128.load (local.get $p)))
            (local.set $k2 (v128.load (local.get $q)))
            (local.set $k3 (v128.load (local.get $r)))
            (local.set $k4 (v128.load (local.get $s)))
            (local.set $pqLow
              (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $k1) (local.get $k2)))
            (local.set $pqHigh
              (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $k1) (local.get $k2)))
            (local.set $rsLow
              (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $k3) (local.get $k4)))
            (local.set $rsHigh
              (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $k3) (local.get $k4)))
            (local.set $k1
              (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $pqLow) (local.get $rsLow)))
            (local.set $k2
              (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $pqLow) (local.get $rsLow)))
            (local.set $k3
              (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $pqHigh) (local.get $rsHigh)))
            (local.set $k4
              (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $pqHigh) (local.get $rsHigh)))

            (local.set $k1 (i32x4.mul (local.get $k1) (local.get $c1)))
            (local.set $k1
              (v128.or (i32x4.shl (local.get $k1) (i32.const 15)) (i32x4.shr_u (local.get $k1) (i32.const 17))))
            (local.set $h1 (v128.xor (local.get $h1) (i32x4.mul (local.get $k1) (local.get $c2))))
            (local.set $h1
              (v128.or (i32x4.shl (local.get $h1) (i32.const 19)) (i32x4.shr_u (local.get $h1) (i32.const 13))))
            (local.set $h1 (i32x4.add (local.get $h1) (local.get $h2)))
            (local.set $h1
              (i32x4.add
                (i32x4.add (local.get $h1) (i32x4.shl (local.get $h1) (i32.const 2)))
                (v128.const i32x4 0x561ccd1b 0x561ccd1b 0x561ccd1b 0x561ccd1b)))

            (local.set $k2 (i32x4.mul (local.get $k2) (local.get $c2)))
            (local.set $k2
              (v128.or (i32x4.shl (local.get $k2) (i32.const 16)) (i32x4.shr_u (local.get $k2) (i32.const 16))))
            (local.set $h2 (v128.xor (local.get $h2) (i32x4.mul (local.get $k2) (local.get $c3))))
            (local.set $h2
              (v128.or (i32x4.shl (local.get $h2) (i32.const 17)) (i32x4.shr_u (local.get $h2) (i32.const 15))))
            (local.set $h2 (i32x4.add (local.get $h2) (local.get $h3)))
            (local.set $h2
              (i32x4.add
                (i32x4.add (local.get $h2) (i32x4.shl (local.get $h2) (i32.const 2)))
                (v128.const i32x4 0x0bcaa747 0x0bcaa747 0x0bcaa747 0x0bcaa747)))

            (local.set $k3 (i32x4.mul (local.get $k3) (local.get $c3)))
            (local.set $k3
              (v128.or (i32x4.shl (local.get $k3) (i32.const 17)) (i32x4.shr_u (local.get $k3) (i32.const 15))))
            (local.set $h3 (v128.xor (local.get $h3) (i32x4.mul (local.get $k3) (local.get $c4))))
            (local.set $h3
              (v128.or (i32x4.shl (local.get $h3) (i32.const 15)) (i32x4.shr_u (local.get $h3) (i32.const 17))))
            (local.set $h3 (i32x4.add (local.get $h3) (local.get $h4)))
            (local.set $h3
              (i32x4.add
                (i32x4.add (local.get $h3) (i32x4.shl (local.get $h3) (i32.const 2)))
                (v128.const i32x4 0x96cd1c35 0x96cd1c35 0x96cd1c35 0x96cd1c35)))

            (local.set $k4 (i32x4.mul (local.get $k4) (local.get $c4)))
            (local.set $k4
              (v128.or (i32x4.shl (local.get $k4) (i32.const 18)) (i32x4.shr_u (local.get $k4) (i32.const 14))))
            (local.set $h4 (v128.xor (local.get $h4) (i32x4.mul (local.get $k4) (local.get $c1))))
            (local.set $h4
              (v128.or (i32x4.shl (local.get $h4) (i32.const 13)) (i32x4.shr_u (local.get $h4) (i32.const 19))))
            (local.set $h4 (i32x4.add (local.get $h4) (local.get $h1)))
            (local.set $h4
              (i32x4.add
                (i32x4.add (local.get $h4) (i32x4.shl (local.get $h4) (i32.const 2)))
                (v128.const i32x4 0x32ac3b17 0x32ac3b17 0x32ac3b17 0x32ac3b17)))

            (local.set $p (i32.add (local.get $p) (i32.const 16)))
            (local.set $q (i32.add (local.get $q) (i32.const 16)))
            (local.set $r (i32.add (local.get $r) (i32.const 16)))
            (local.set $s (i32.add (local.get $s) (i32.const 16)))
            (br $block)))

        ;; The one to three words behind the last four.
        (block $ended
          (br_if $ended (i32.eqz (i32.and (local.get $words) (i32.const 3))))
          (block $first
            (block $second
              (br_if $first (i32.eq (i32.and (local.get $words) (i32.const 3)) (i32.const 1)))
              (br_if $second (i32.eq (i32.and (local.get $words) (i32.const 3)) (i32.const 2)))
              (local.set $k3 (v128.load32_zero offset=8 (local.get $p)))
              (local.set $k3 (v128.load32_lane offset=8 1 (local.get $q) (local.get $k3)))
              (local.set $k3 (v128.load32_lane offset=8 2 (local.get $r) (local.get $k3)))
              (local.set $k3 (v128.load32_lane offset=8 3 (local.get $s) (local.get $k3)))
              (local.set $k3 (i32x4.mul (local.get $k3) (local.get $c3)))
              (local.set $k3
                (v128.or (i32x4.shl (local.get $k3) (i32.const 17)) (i32x4.shr_u (local.get $k3) (i32.const 15))))
              (local.set $h3 (v128.xor (local.get $h3) (i32x4.mul (local.get $k3) (local.get $c4)))))
            (local.set $k2 (v128.load32_zero offset=4 (local.get $p)))
            (local.set $k2 (v128.load32_lane offset=4 1 (local.get $q) (local.get $k2)))
            (local.set $k2 (v128.load32_lane offset=4 2 (local.get $r) (local.get $k2)))
            (local.set $k2 (v128.load32_lane offset=4 3 (local.get $s) (local.get $k2)))
            (local.set $k2 (i32x4.mul (local.get $k2) (local.get $c2)))
            (local.set $k2
              (v128.or (i32x4.shl (local.get $k2) (i32.const 16)) (i32x4.shr_u (local.get $k2) (i32.const 16))))
            (local.set $h2 (v128.xor (local.get $h2) (i32x4.mul (local.get $k2) (local.get $c3)))))
          (local.set $k1 (v128.load32_zero (local.get $p)))
          (local.set $k1 (v128.load32_lane 1 (local.get $q) (local.get $k1)))
          (local.set $k1 (v128.load32_lane 2 (local.get $r) (local.get $k1)))
          (local.set $k1 (v128.load32_lane 3 (local.get $s) (local.get $k1)))
          (local.set $k1 (i32x4.mul (local.get $k1) (local.get $c1)))
          (local.set $k1
            (v128.or (i32x4.shl (local.get $k1) (i32.const 15)) (i32x4.shr_u (local.get $k1) (i32.const 17))))
          (local.set $h1 (v128.xor (local.get $h1) (i32x4.mul (local.get $k1) (local.get $c2)))))

        (local.set $h1 (v128.xor (local.get $h1) (local.get $bytes)))
        (local.set $h2 (v128.xor (local.get $h2) (local.get $bytes)))
        (local.set $h3 (v128.xor (local.get $h3) (local.get $bytes)))
        (local.set $h4 (v128.xor (local.get $h4) (local.get $bytes)))
        (local.set $h1
          (i32x4.add
            (i32x4.add (local.get $h1) (local.get $h2))
            (i32x4.add (local.get $h3) (local.get $h4))))
        (local.set $h2 (i32x4.add (local.get $h2) (local.get $h1)))
        (local.set $h3 (i32x4.add (local.get $h3) (local.get $h1)))
        (local.set $h4 (i32x4.add (local.get $h4) (local.get $h1)))
        (local.set $h1 (v128.xor (local.get $h1) (i32x4.shr_u (local.get $h1) (i32.const 16))))
        (local.set $h1
          (i32x4.mul (local.get $h1) (v128.const i32x4 0x85ebca6b 0x85ebca6b 0x85ebca6b 0x85ebca6b)))
        (local.set $h1 (v128.xor (local.get $h1) (i32x4.shr_u (local.get $h1) (i32.const 13))))
        (local.set $h1
          (i32x4.mul (local.get $h1) (v128.const i32x4 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35)))
        (local.set $h1 (v128.xor (local.get $h1) (i32x4.shr_u (local.get $h1) (i32.const 16))))
        (local.set $h2 (v128.xor (local.get $h2) (i32x4.shr_u (local.get $h2) (i32.const 16))))
        (local.set $h2
          (i32x4.mul (local.get $h2) (v128.const i32x4 0x85ebca6b 0x85ebca6b 0x85ebca6b 0x85ebca6b)))
        (local.set $h2 (v128.xor (local.get $h2) (i32x4.shr_u (local.get $h2) (i32.const 13))))
        (local.set $h2
          (i32x4.mul (local.get $h2) (v128.const i32x4 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35)))
        (local.set $h2 (v128.xor (local.get $h2) (i32x4.shr_u (local.get $h2) (i32.const 16))))
        (local.set $h3 (v128.xor (local.get $h3) (i32x4.shr_u (local.get $h3) (i32.const 16))))
        (local.set $h3
          (i32x4.mul (local.get $h3) (v128.const i32x4 0x85ebca6b 0x85ebca6b 0x85ebca6b 0x85ebca6b)))
        (local.set $h3 (v128.xor (local.get $h3) (i32x4.shr_u (local.get $h3) (i32.const 13))))
        (local.set $h3
          (i32x4.mul (local.get $h3) (v128.const i32x4 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35)))
        (local.set $h3 (v128.xor (local.get $h3) (i32x4.shr_u (local.get $h3) (i32.const 16))))
        (local.set $h4 (v128.xor (local.get $h4) (i32x4.shr_u (local.get $h4) (i32.const 16))))
        (local.set $h4
          (i32x4.mul (local.get $h4) (v128.const i32x4 0x85ebca6b 0x85ebca6b 0x85ebca6b 0x85ebca6b)))
        (local.set $h4 (v128.xor (local.get $h4) (i32x4.shr_u (local.get $h4) (i32.const 13))))
        (local.set $h4
          (i32x4.mul (local.get $h4) (v128.const i32x4 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35 0xc2b2ae35)))
        (local.set $h4 (v128.xor (local.get $h4) (i32x4.shr_u (local.get $h4) (i32.const 16))))
        (local.set $h1
          (i32x4.add
            (i32x4.add (local.get $h1) (local.get $h2))
            (i32x4.add (local.get $h3) (local.get $h4))))
        (local.set $h2 (i32x4.add (local.get $h2) (local.get $h1)))
        (local.set $h3 (i32x4.add (local.get $h3) (local.get $h1)))
        (local.set $h4 (i32x4.add (local.get $h4) (local.get $h1)))

        ;; A vector for each of the four words becomes the hash of a row each.
        (local.set $pqLow
          (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $h1) (local.get $h2)))
        (local.set $pqHigh
          (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $h1) (local.get $h2)))
        (local.set $rsLow
          (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $h3) (local.get $h4)))
        (local.set $rsHigh
          (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $h3) (local.get $h4)))
        (v128.store (local.get $to)
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $pqLow) (local.get $rsLow)))
        (v128.store offset=16 (local.get $to)
          (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $pqLow) (local.get $rsLow)))
        (v128.store offset=32 (local.get $to)
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $pqHigh) (local.get $rsHigh)))
        (v128.store offset=48 (local.get $to)
          (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $pqHigh) (local.get $rsHigh)))
        (local.set $to (i32.add (local.get $to) (i32.const 64)))
        (br $next))))

  ;; Gives the NaN among `words` floats (f32), a multiple of four, one pattern of bits.
  (func (export "unifyNan") (param $at i32) (param $words i32)
    (local $end i32) (local $four v128)
    (local.set $end (i32.add (local.get $at) (i32.shl (local.get $words) (i32.const 2))))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $four (v128.load (local.get $at)))
        (v128.store (local.get $at)
          (v128.bitselect
            (local.get $four)
            (v128.const i32x4 0x7fc00000 0x7fc00000 0x7fc00000 0x7fc00000)
            (f32x4.eq (local.get $four) (local.get $four))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next)))))
